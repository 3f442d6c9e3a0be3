"""Everything that a store holds, carried over to another one.

Theory of operation. Both stores have the same tables with the same columns, so nothing here knows
what stands in them. A table is read in the order of its primary key, a bounded piece at a time, and
each piece is written in one transaction with a note of how far it has come: a copy that was killed
goes on behind the last note. While there are notes, no coordinator may use the copy. At the end
both sides are read again and compared, row by row, and only if they agree the notes go.
"""
