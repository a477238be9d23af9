"""Every figure of the documentation, each with its command.

core            how fast the event core is, beside the bare client
log/            the parts of `bench.core`
submit          how long a submission takes
follow          what followers of one job see, and how late
gateway         the HTTP API under load
bare_gateway    what the gateway is compared with
rebuild         how long everything takes to come back from the log
data/           checking, tokenising and packing of data
measures        what the benches over HTTP share
figures         writes `docs/figures.md` from recorded results
"""
