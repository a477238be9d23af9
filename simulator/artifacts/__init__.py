"""Scenario: ingest and registry, with people who keep files and models, and jobs that use them.

`scenario.py`       the scenario as the command line knows it, and the verdict on a run: what
                    must be in object storage at the end, and nothing else
`plan.py`           what a seed draws
`artifacts_sim.py`  one run: faulty time first, then months, until nothing is under way
`hosts.py`          the hosts of the simulated processes, and work on files whose results are drawn
`people.py`         requests about files and models, each kind a row of a table
`jobs.py`           jobs that pin files and bases, and make models, as `job` sees them
`file_books.py`     an independent account of files, uploads, pins and preparations
`version_books.py`  what is known of base models and versions
`model_books.py`    an independent account of base models and versions
`share_books.py`    an independent account of stages, deployments and their traffic
`mutants.py`        rules of both services, each broken once
"""
