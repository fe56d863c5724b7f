"""Experiments of the paper and benchmarks against peers: a second package beside `taut`.

`taut` never imports it. Once installed it adds the commands `taut reproduce` and `taut bench`.
"""
