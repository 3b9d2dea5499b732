"""`python -m ipex bench`: times a model in ipex and in other ways to run it, each in a process of its own.

    command.py     the options, and the order of the work
    subject.py     what is timed: a model of models/, or a file
    reference.py   eager's results, which all others have to give too
    backends/      the ways to run it
    worker.py      a process with one backend; process.py is its other end
    cell.py        one model, batch and number of threads: all backends in turn
    results.py     what was measured; statistics.py draws conclusions
    markdown.py, chart.py    tables and a picture
    machine.py     what the figures depend on

Nothing of it is imported by `import ipex`.
"""
