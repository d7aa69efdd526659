"""A page for browsers: who receives which topic, what happens now, a playground for patterns, and why.

| module | what it does |
|---|---|
| `app` | `console(sources, access)`: the application, to be served alone or mounted elsewhere |
| `sources` | what the page reads, as protocols: a job has more of it than a console that stands alone |
| `live` | the relation, read from the updates topic, within bounds of memory |
| `access` | hosts, tokens and headers |
| `server` | the application on an address of its own |

`static` holds the page itself, which the browser runs as it is.
"""
