"""What the console of these tests shows: names that are not nice, among others."""

from typing import Final

import orjson

from tests.support.update_records import Record, add

HOSTILE: Final = "<img src=x onerror=\"document.title='owned'\">__\u202egnp__'`&amp;"
"""Name of a topic that would run a script, and turn the direction of a text, if a page took it for markup."""

HOSTILE_CLIENT: Final = "</script><script>document.title='owned'</script>"

_SHOP: Final = {"parent": "orders"}
ROWS: Final[tuple[Record, ...]] = (
    *(
        add(f"{region}__{tenant}__{kind}__{event}", client=client, group=group, changes={"patterns": patterns}, **_SHOP)
        for region in ("eu", "us")
        for tenant in ("acme", "globex")
        for kind, event in (("order", "created"), ("order", "shipped"), ("invoice", "issued"))
        for client, group, patterns in (
            ("auditor", "audit", []),
            *([("eu-dashboard", "dashboards", ["eu__**"])] if region == "eu" else []),
            *([("globex-billing", "billing", ["*__globex__**"])] if tenant == "globex" else []),
        )
    ),
    add("eu/berlin/temp", parent="sensors", client="c3", group="hot", part="share:s", changes={"patterns": ["eu/#"]}),
    add(HOSTILE, parent="odd", client=HOSTILE_CLIENT, group="<b>", changes={"patterns": ["<i>**</i>"], "cause": "<u>"}),
)

LETTERS: Final[tuple[tuple[bytes, bytes], ...]] = tuple(
    (
        orjson.dumps(["lite-topic-events", 0, offset, 0]),
        orjson.dumps(
            {"reason": reason, "message": message, "original": original, "originalBytes": len(original),
             "originalEncoding": "utf-8", "truncated": False}
        ),
    )
    for offset, (reason, message, original) in enumerate([
        ("not-json", "the value is not JSON: unexpected end of data", '{"event": "CREATED", "liteTo'),
        ("blank-name", f"the name {HOSTILE} is odd", f'{{"liteTopic": "{HOSTILE}"}}'),
        ("quota-exceeded", "client c has 7 topics; its quota is 5", '{"action": "PARTIAL_ADD"}'),
    ])
)  # fmt: skip
