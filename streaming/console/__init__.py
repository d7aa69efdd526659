"""A web page that shows which client receives which topic and why, live updates, and a playground for patterns.

| module | contents |
|---|---|
| `app` | `console(sources, token)`: the application, standalone or mounted, and its data sources |
| `live` | the relation, read from the updates topic, with limited memory |
| `listing` | lists: searched, sorted, in pages |
| `job_lists` | lists from the running job |
| `access` | hosts, tokens and headers |
| `server` | the standalone server |

`static` contains the files of the page, which are served unchanged.
"""
