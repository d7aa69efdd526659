"""Programs on local brokers: the demo, and examples to copy.

The demo runs a scenario on the job and checks the result. The examples are a dispatcher, a broker plug-in that reports
its topics, and sample traffic.
"""
