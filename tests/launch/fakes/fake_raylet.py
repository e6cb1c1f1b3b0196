"""Stands in for ray._raylet."""


class GcsClientOptions:
    @staticmethod
    def create(address: str, *_: object, **__: object) -> str:
        return address
