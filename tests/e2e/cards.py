"""Cards that the oracle names, as our driver would find them."""

from hami_dra.node.inventory import Card


def found(uuid: str, product_name: str, memory_mib: int) -> Card:
    """Return a card; what the oracle does not say is as on any other."""
    return Card(
        uuid=uuid,
        minor=0,
        product_name=product_name,
        brand="Nvidia",
        architecture="Ampere",
        memory_bytes=memory_mib << 20,
        compute_capability="8.0",
        driver_version="550.54.15",
        cuda_driver_version="12.4",
        pcie_bus_id="0000:17:00.0",
    )
