"""What finance uses: use of GPU time, statements of jobs.

* `usage_routes`, `usage`: use of a tenant in buckets of time, grouped
* `answer_use_routes`: tokens of answers in buckets of time, grouped
* `usage_pages`: pages of sums in buckets of time
* `invoice_routes`, `invoice_reads`, `invoice_responses`: invoices and their lines
* `invoice_sums`, `job_facts`: an invoice's amounts per job, key, suffix or name of metadata
* `invoice_page`, `page_pdf`: an invoice as HTML, and the page as PDF
* `contract_routes`, `contract_terms`: what invoices say, and a contract's terms
* `prepaid_routes`: credits that were bought in advance
* `statement_routes`: each slice and credit of a job with the event it comes from
* `tables`, `projection`: the journal `account` as rows of bills
* `responses`: responses
"""
