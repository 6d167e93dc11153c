"""One database login for each service: it may do what the service's role may do, and no more."""

from collections.abc import Mapping, Sequence

from lamina.postgres.migrate import ROLES, grant_login, migrate
from lamina.topology import Topology


def role_of(service: str) -> str | None:
    """The database role of a service; None where it needs no database."""
    role = f"lamina_{service.replace('-', '_')}"
    return role if role in ROLES else None


def login_of(role: str) -> str:
    """The name that the local service of a role logs in with."""
    return f"{role}_local"


def accounts(topology: Topology) -> Sequence[str]:
    """Every login that the services need."""
    return [login_of(role) for name in topology.services if (role := role_of(name))]


async def prepare(url: str, passwords: Mapping[str, str]) -> None:
    """Bring the schema up to date, and let each service log in. `passwords`: by login."""
    await migrate(url)
    for role in ROLES:
        if login_of(role) in passwords:
            await grant_login(url, role, login_of(role), passwords[login_of(role)])
