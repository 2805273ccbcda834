"""The work of `hami-dra audit`: read a cluster, judge what it holds, and say it in four formats."""
