"""Pure functions of scores. `verdict`: of base and adapter; `measured`: of the tenant's rows;
`judged`: of a judge of both answers to these; `benchmarked`: of the operator's benchmarks;
`pairs`: of a reward model; `suggestions`: what to change when it does not pass.
"""
