"""Queries on the live state of a running job: explanations, lists, and dry runs.

>>> from streaming.inspect import Inspector
>>> with Inspector(settings) as inspector:  # doctest: +SKIP
...     [found] = inspector.explain("c1", "orders__1__paid", group="billing")
...     print(found.verdict, found.reason)
"""

from matcher.explain import Step as SegmentStep
from streaming.inspect.api import Explanation, Filter, Inspector
from streaming.inspect.effects import DryRun, ParentEffect
from streaming.worker.inquiry.model import (
    BindingFacts,
    ClientFacts,
    EntryVerdict,
    EventPlace,
    GroupFacts,
    Hint,
    LeaseFacts,
    Page,
    PairFacts,
    PairVerdict,
    PlannedProblem,
    PlannedUpdate,
    QuotaFacts,
    RowFacts,
    SubscriberFacts,
    SubscriptionFacts,
    TopicDetails,
    TopicFacts,
)

__all__ = [
    "BindingFacts",
    "ClientFacts",
    "DryRun",
    "EntryVerdict",
    "EventPlace",
    "Explanation",
    "Filter",
    "GroupFacts",
    "Hint",
    "Inspector",
    "LeaseFacts",
    "Page",
    "PairFacts",
    "PairVerdict",
    "ParentEffect",
    "PlannedProblem",
    "PlannedUpdate",
    "QuotaFacts",
    "RowFacts",
    "SegmentStep",
    "SubscriberFacts",
    "SubscriptionFacts",
    "TopicDetails",
    "TopicFacts",
]
