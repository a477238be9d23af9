"""What proves where a published version comes from: signed, and checked without a network.

* `envelopes`: statements of in-toto in bundles of sigstore, as OpenSSF's model-signing writes them
* `keys`: the key of a registry, and the keys and certificates that a verifier trusts
* `statements`: what is signed: the files of a version, and its lineage
* `materials`: the bill of materials of a version, in CycloneDX
* `folders`: compares a downloaded folder with what was signed
"""
