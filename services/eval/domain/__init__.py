"""Pure functions of scores. `verdict`: of base and adapter; `measured`: of the tenant's rows;
`suggestions`: what to change when it does not pass.
"""
