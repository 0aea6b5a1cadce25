"""A secured cluster: TLS with certificates of its own authority, SASL/SCRAM users, and ACLs that deny what they do not allow.

`<data folder>/security` has the authority, the nodes' certificate, and one client properties file for each user. Only its owner
can read the folder, and no password appears on a command line.
"""
