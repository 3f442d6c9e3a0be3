"""Copies everything that a store holds to another store.

Theory of operation. Both stores have the same tables with the same columns, so this code does not
depend on their content. A table is read in the order of its primary key, one bounded chunk at a
time. Each chunk is written in one transaction with the progress of its table: a killed copy
continues after the last chunk. While there is progress, no coordinator may use the copy. At the end
both stores are read again and compared row by row. If they are equal, the progress is dropped.
"""
