"""A web page that shows which client receives which topic and why, live updates, and a playground for patterns.

| module | contents |
|---|---|
| `app` | `console(sources, access)`: the application, standalone or mounted |
| `sources` | data sources of the page; a console inside a job has more of them than a standalone console |
| `live` | the relation, read from the updates topic, with limited memory |
| `access` | hosts, tokens and headers |
| `server` | the standalone server |

`static` contains the files of the page, which are served unchanged.
"""
