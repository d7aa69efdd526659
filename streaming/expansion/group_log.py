"""Logs of groups in which a quota refuses requests: the latest requests, to be judged again one by one.

Whether a quota refuses a request depends on the set of its client and on the selector of its group, and so on earlier
requests of all clients of the group. The end of a client arrives late, and may make such a request count or not. So a
shard logs the requests of a group, beginning with the first whose judgement an end may change. An end is put in its
place among them, and the requests after it are judged again, in their order.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streaming.expansion.admission import Admission, admission
from streaming.expansion.ends import EndReplay, EndStep, Orders
from streaming.expansion.view import Overlay, ShardView
from streaming.records.model import Action, Place, SelectorSpec, SubscriptionRequest
from streaming.records.subscribers import ClientKey
from streaming.state import GroupSelectors
from streaming.state.client import Client, Ignored, Mode, RequestOutcome, Subscription, advance
from streaming.state.group import Selection
from streaming.state.notes import MAX_LOGGED, NO_END, ClientNotes, Judged, Repeated

_Outcomes = Mapping[Mode, RequestOutcome]


class GroupLog:
    """Log of one group in a micro-batch; the overlay takes the changes."""

    def __init__(self, view: ShardView, overlay: Overlay, group: str) -> None:
        self._view = view
        self._overlay = overlay
        self._group = group
        self._key = ClientKey(group, "")  # no client has a blank id
        self._orders: Orders | None = None
        notes = view.notes(self._key)
        self._next = notes.read
        numbered = ((number, view.repeated(self._key, number)) for number in range(notes.applied, notes.read))
        self._parts = {number: part for number, part in numbered if part is not None}
        self._firsts = {
            _key(part): number
            for number, part in self._parts.items()
            if part.judged is not None and part.judged.former is not None
        }
        if self._parts and not view.shard.refuses_requests:
            self._drop(self._parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def _selectors(self) -> GroupSelectors:
        """The selectors of the group before the log."""
        bases = (part.judged.selectors for part in self._parts.values() if part.judged is not None)
        return next((selectors for selectors in bases if selectors is not None), GroupSelectors())

    def _log(self, part: Repeated, judged: Judged, selectors: GroupSelectors) -> None:
        """Log a request with the client before it, and with the selectors of the group, unless the log has them."""
        key, known = _key(part), next(iter(self._parts.values()), None)
        if known is not None and known.place.partition != part.place.partition:
            self._drop(self._parts)
            known = None
        first = self._firsts.get(key)
        if first is None or part.place.position < self._parts[first].place.position:
            if first is not None:
                self._change(first, former=None)
            self._firsts[key] = self._next
        else:
            judged = judged._replace(former=None)
        self._put(part._replace(judged=judged._replace(selectors=selectors if known is None else None)))
        if len(self._parts) > 2 * MAX_LOGGED:
            self._cut()

    def _rebase(self, clients: Mapping[ClientKey, Client], selectors: GroupSelectors) -> None:
        """Change the clients and selectors before the log."""
        for key, client in clients.items():
            self._change(self._firsts[key], former=client.settled)
        for number, part in list(self._parts.items()):
            if part.judged is not None and part.judged.selectors not in (None, selectors):
                self._change(number, selectors=selectors)

    def _cut(self) -> None:
        """Leave the latest requests in the log, or none if an end cannot change the judgement of any of them."""
        course = _Course(self._view, self._group, self._selectors)
        ordered = sorted(self._parts.items(), key=lambda each: _rank(each[1]))
        dropped, kept = dict(ordered[:-MAX_LOGGED]), dict(ordered[-MAX_LOGGED:])
        for part in dropped.values():
            course.follow(part)
        base, in_doubt = course.selectors, False
        formers: dict[ClientKey, tuple[int, Client]] = {}
        for number, part in kept.items():
            if part.judged is not None:
                formers.setdefault(_key(part), (number, course.client(part).settled))
                sets_selector = part.request.selector not in (None, course.selected)
                in_doubt = in_doubt or part.judged.is_contested or sets_selector
            elif _key(part) not in formers:
                dropped[number] = part  # an end with no earlier request of its client
            course.follow(part)
        self._drop(dropped if in_doubt else self._parts)
        for place, (number, former) in enumerate(formers.values() if in_doubt else ()):
            self._change(number, former=former, **{} if place else {"selectors": base})
            self._firsts[_key(self._parts[number])] = number

    def _change(self, number: int, **changes: Any) -> None:
        part = self._parts[number]
        self._put(part._replace(judged=part.judged and part.judged._replace(**changes)), number)

    def _put(self, part: Repeated, number: int | None = None) -> None:
        if number is None:
            number, self._next = self._next, self._next + 1
        self._parts[number] = self._overlay.repeated[self._key, number] = part
        self._note(part.place.partition)

    def _drop(self, numbers: Collection[int]) -> None:
        for number in list(numbers):
            del self._parts[number]
            self._overlay.repeated[self._key, number] = None
        self._firsts = {key: number for key, number in self._firsts.items() if number in self._parts}
        self._note(self._view.notes(self._key).partition)

    def _note(self, partition: int) -> None:
        notes = ClientNotes(partition, NO_END, self._next, min(self._parts, default=self._next))
        self._overlay.notes[self._key] = notes

    def add(
        self,
        place: Place,
        request: SubscriptionRequest,
        former: Client,
        outcomes: _Outcomes,
        *,
        order: float,
        admitted: Admission,
    ) -> None:
        """Log a request, if there is a log or an end may change its judgement.

        The outcomes are those without a refusal by the quota; `order` is the number of the request on the shard.
        """
        if self._orders is not None:
            self._orders.add(place, order)
        if not self._view.shard.refuses_requests:
            return
        if not self._parts and not (admitted.is_contested or self._is_in_doubt(request, outcomes)):
            return
        is_refused = admitted.excess is not None
        judged = Judged(order, admitted.is_contested, is_refused, former.settled)
        self._log(Repeated(place, request), judged, self._view.group_selectors(self._group))

    @property
    def latest_order(self) -> float:
        """Highest number of a request that an end has repeated; 0 without any."""
        return 0.0 if self._orders is None else self._orders.latest

    def end(self, key: ClientKey, parts: Sequence[Repeated]) -> list[EndStep]:
        """Return the steps of an end: of the client, and of others judged again.

        The parts are the end and the requests that it repeats, or the parts after the applied parts.
        """
        if self._orders is None:
            self._orders = Orders(self._view, self._group)
        client, earlier = self._view.client(key), parts
        first = self._parts[self._firsts[key]] if key in self._firsts else None
        if first is not None and first.judged is not None and first.judged.former is not None:
            client = first.judged.former.editable
            earlier = [part for part in parts if part.place.position < first.place.position]
        policy, in_doubt = self._view.policy(self._group), min(self._parts, default=self._next) > 0  # the log was cut
        if self._parts:
            policy = policy._replace(selector=self._selectors.in_mode(policy.mode))
        replay = EndReplay(self._view, self._orders, key, client, earlier, policy=policy, in_doubt=in_doubt)
        steps = list(replay.steps())
        kept = [(Repeated(step.place, step.request), step.judged) for step in steps if step.judged is not None]
        selectors = self._view.group_selectors(self._group)
        for step in steps:
            selectors = step.reselected(selectors)
        if self._parts:
            ends = [part for part in parts[len(earlier) :] if part.request.ends is not None]
            steps = self._judged_again(steps, {} if first is None else {key: replay.client}, ends)
        for part, judged in kept:
            self._log(part, judged, selectors)
        return steps

    def _is_in_doubt(self, request: SubscriptionRequest, outcomes: _Outcomes) -> bool:
        """Return True if an end may make a stale request count, or take back the selector that it sets."""
        is_stale = any(outcome.ignored is Ignored.STALE_VERSION for outcome in outcomes.values())
        if request.selector is None and not is_stale:
            return False  # nearly always
        policy = self._view.policy(self._group)
        share = self._view.shard.share(policy.quota)
        can_be_refused = share is not None and len(self._view.state.topics) > share
        return can_be_refused and (is_stale or request.selector != policy.selector)

    def _judged_again(
        self, steps: Sequence[EndStep], clients: Mapping[ClientKey, Client], ends: Sequence[Repeated]
    ) -> list[EndStep]:
        """Return the steps of an end and of the log, and the selectors after it.

        The steps are of requests of the client that are not in the log; `clients` has the client before its first
        request in the log, and `ends` are put into the log.
        """
        selectors = former = self._selectors
        for step in steps:
            selectors = step.reselected(selectors)
        found = [step._replace(stale=(), applied=()) for step in steps]
        selects = [number for number, step in enumerate(steps) if step.request.selector is not None]
        old, new = _Course(self._view, self._group, former), _Course(self._view, self._group, selectors)
        new.clients.update(clients)
        course: list[tuple[int | None, Repeated]] = [*self._parts.items(), *((None, end) for end in ends)]
        for number, part in sorted(course, key=lambda each: _rank(each[1])):
            was, excess = old.client(part), None
            now = new.clients.get(_key(part), was)
            outcomes, counted = new.outcomes(part, now), tuple[Mode, ...]()
            if number is not None:
                before = outcomes if now is was else old.outcomes(part, was)
                counted = old.apply(part, was, before)
                if self._is_judged_again(part, was, now, before, outcomes, is_selected=old.selected != new.selected):
                    part, excess = self._judge(part, now, outcomes, new.selected)  # noqa: PLW2901
            if number is None or now is not was or excess is not None:
                is_selecting = new.apply(part, now, outcomes) != counted and part.request.selector is not None
                selects += [len(found)] if is_selecting else []
                found.append(EndStep(part.place, part.request, new.clients[_key(part)], excess=excess))
            else:
                new.select(part, counted)
            if number is None or part is not self._parts[number]:
                self._put(part, number)
        self._rebase(clients, selectors)
        if new.selectors != old.selectors and found:
            at = selects[-1] if selects else -1
            found[at] = found[at]._replace(selectors=new.selectors)
        return found

    def _is_judged_again(
        self,
        part: Repeated,
        was: Client,
        now: Client,
        before: _Outcomes,
        after: _Outcomes,
        *,
        is_selected: bool,
    ) -> bool:
        """Return True if a request is judged again, because its client or the selector has changed.

        A request within the quota stays within it if its client asks for no more than before.
        """
        judged, mode = part.judged, self._view.group(self._group).mode
        if judged is None or not self._view.shard.refuses_requests:
            return False
        if is_selected:
            return True
        if now is was or now.subscription(mode).content == was.subscription(mode).content:
            return False
        if judged.is_contested or not before[mode].applied:
            return True
        return not after[mode].subscription.content[2] <= before[mode].subscription.content[2]

    def _judge(
        self, part: Repeated, client: Client, outcomes: _Outcomes, selector: SelectorSpec | None
    ) -> tuple[Repeated, str | None]:
        """Return a request with its new judgement, and the reason of a new refusal; blank if one is lifted."""
        judged, policy = part.judged or Judged(0), self._view.policy(self._group)
        present, former = policy._replace(selector=selector), client.subscription(policy.mode)
        excess = admission(self._view, _key(part), part.request, outcomes[policy.mode], former, present=present).excess
        is_refused = excess is not None
        renewed = part._replace(judged=judged._replace(is_contested=True, is_refused=is_refused))
        return renewed, None if is_refused == judged.is_refused else excess or ""


class _Course:
    """Clients that differ from the log, and selectors of a group, from one logged request to the next."""

    def __init__(self, view: ShardView, group: str, selectors: GroupSelectors) -> None:
        self._rules = view.shard.rules
        self._mode = view.group(group).mode
        self.clients: dict[ClientKey, Client] = {}
        self.selectors = selectors

    @property
    def selected(self) -> SelectorSpec | None:
        return self.selectors.in_mode(self._mode)

    def client(self, part: Repeated) -> Client:
        """Return the client of a logged request before it."""
        found = self.clients.get(_key(part))
        if found is None and part.judged is not None and part.judged.former is not None:
            return part.judged.former.editable
        return found or Client()

    def outcomes(self, part: Repeated, client: Client) -> _Outcomes:
        """Return the outcomes of a request or an end, if no quota refuses it."""
        place, request, judged = part
        if request.ends is not None:
            if request.forgets or any(end.forgets for end in request.ends.values()):
                return dict.fromkeys(Mode, RequestOutcome(Subscription()))
            request = request._replace(version=next((end.version for end in request.ends.values()), request.version))
        order = 0 if judged is None else judged.order
        return {mode: advance(client.subscription(mode), request, self._rules(mode), order, place) for mode in Mode}

    def follow(self, part: Repeated) -> None:
        client = self.client(part)
        self.apply(part, client, self.outcomes(part, client))

    def apply(self, part: Repeated, client: Client, outcomes: _Outcomes) -> tuple[Mode, ...]:
        """Apply a request with these outcomes, unless the quota refuses it; return the modes under which it counts."""
        if part.judged is not None and part.judged.is_refused:
            self.clients[_key(part)] = client
            return ()
        self.clients[_key(part)] = Client.of(*(outcomes[mode].subscription for mode in Mode))
        counted = counted_modes(outcomes)
        self.select(part, counted)
        return counted

    def select(self, part: Repeated, modes: tuple[Mode, ...]) -> None:
        """Follow the selector of a request that counts under these modes."""
        place, request, _ = part
        if modes and request.selector is not None and request.action is not Action.COMPLETE_REMOVE:
            selection = Selection(place.partition, place.position, request.selector, modes)
            self.selectors = self.selectors.after(selection, can_be_stale=True)


def counted_modes(outcomes: _Outcomes) -> tuple[Mode, ...]:
    """Return the modes under which a request counts."""
    return tuple(
        mode
        for mode, outcome in outcomes.items()
        if not outcome.refused and outcome.ignored is not Ignored.STALE_VERSION
    )


def _key(part: Repeated) -> ClientKey:
    return ClientKey(part.request.group, part.request.client_id)


def _rank(part: Repeated) -> tuple[int, bool]:
    """Return the place in the course: an end comes after the last request of its client."""
    return part.place.position, part.judged is None
