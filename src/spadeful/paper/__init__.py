"""The tables and figures of the paper: what each needs, how it is run, and how ours compares.

Every file of reproduce/ is an entry: it names the tables and figures that it covers, what they claim and the figures
that the paper has for them. `entries` reads them, `kinds` runs them, `claims` tests what they came to, and `report`
tells of all in one page.
"""
