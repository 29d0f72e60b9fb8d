"""Damage to the files of a stopped broker and what becomes of the records in them: the table of docs/damaged-files.md.

`template` makes the log dir that every case begins with, `files` says which kinds of files it has, `harm` damages one,
and `verdict` starts a broker on it and judges.
"""
