"""The official client, with our pool of connections."""

from kubernetes.aio.client import ApiClient, Configuration

from hami_dra.kube.connections import Pool


class Client(ApiClient):  # type: ignore[misc]  # untyped client library
    """The official client, whose connections end with it.

    Args:
        configuration: where the API server is and who we are.
    """

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        limit, context = configuration.connection_pool_maxsize, self.rest_client.ssl_context
        self._connections = Pool(limit=limit, ssl=context)
        # Given by the caller, they are the caller's to close.
        configuration.client_session_kwargs = {"connector": self._connections}

    async def close(self) -> None:
        """End every connection."""
        await super().close()
        await self._connections.close()
