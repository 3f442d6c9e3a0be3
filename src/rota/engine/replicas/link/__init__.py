"""The link between a follower and the leader: the frames they exchange, and their encoding.

The engine sees frames with decoded values. A transport (`rota.gateways.peers`) encodes and decodes
them with one codec per end of a connection.
"""
