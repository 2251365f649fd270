"""Which server a command speaks to: the one that is named, or the only one that runs here. No gRPC in here."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from deploy.admin.errors import NoServer
from deploy.admin.records import ServerRecord, living_records
from deploy.admin.token import read_token
from deploy.config import Environment

_ADDRESS = re.compile(r"(\[[^\]\s]+\]|[^:\s\[\]]+):\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`address` is HOST:PORT; `tls_ca` the certificates to trust, None for plain text."""

    address: str
    token: str = field(repr=False)
    token_file: Path
    tls_ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What the command line says, each None where it says nothing."""

    address: str | None = None
    token_file: Path | None = None
    tls_ca: Path | None = None


def find_server(named: Named, environment: Environment) -> Endpoint:
    """Flags win over the environment, both over records. Raises `NoServer` and `BadToken`."""
    address = named.address or environment.admin_address
    if address is not None and not _ADDRESS.fullmatch(address):
        raise NoServer(f"{address!r} is no HOST:PORT, such as 127.0.0.1:8001; correct --admin or PARKADE_ADMIN")
    record = _recorded(address, living_records(environment.records_dir), environment)
    token_file = named.token_file or environment.admin_token_file
    if token_file is None and record is not None:
        token_file = Path(record.token_file)
    if token_file is None:
        raise NoServer(
            f"no server that was started here listens at {address}: name the file with its token "
            "by --token-file FILE or PARKADE_ADMIN_TOKEN_FILE"
        )
    tls_ca = named.tls_ca or environment.admin_tls_ca
    if tls_ca is None and record is not None and record.tls_ca is not None:
        tls_ca = Path(record.tls_ca)
    found = address or (record.admin if record else "")
    return Endpoint(address=found, token=read_token(token_file), token_file=token_file, tls_ca=tls_ca)


def _recorded(address: str | None, records: list[ServerRecord], environment: Environment) -> ServerRecord | None:
    """The record of `address`, or the only one there is if none is asked for."""
    if address is not None:
        return next((record for record in records if record.admin == address), None)
    if not records:
        raise NoServer(
            f"no server of this user runs here ({environment.records_dir} names none): start one with "
            "`parkade serve MODEL`, or name one by --admin HOST:PORT and --token-file FILE"
        )
    if len(records) > 1:
        found = ", ".join(f"{record.admin} ({record.model}, pid {record.pid})" for record in records)
        raise NoServer(f"{len(records)} servers run here: {found}; choose one by --admin HOST:PORT")
    return records[0]
