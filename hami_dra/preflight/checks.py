"""All facts, in the order in which a person wants to read them. Pure."""

from typing import Final

from hami_dra.preflight import coexistence, devices, registration, server, service, tenants
from hami_dra.preflight.fact import Check

CHECKS: Final[tuple[Check, ...]] = (
    *server.CHECKS,
    *devices.CHECKS,
    *coexistence.CHECKS,
    *registration.CHECKS,
    *service.CHECKS,
    *tenants.CHECKS,
)
