"""The Ray actor round a rank. Its one call lasts as long as the rank lives, so a pending call is the death detector."""

from cluster.actor_log import LogSpec, open_actor_log
from cluster.placement import this_node_ip
from workers.executors.rank_host import RankHost, settle_environment
from workers.executors.rank_specs import new_collective_spec
from workers.link import LinkAddress, serve_rank
from workers.spec import CollectiveSpec, RankSpec


class RankActor:
    """max_restarts=0: a group is whole or gone."""

    def rendezvous(self, kind: str, timeout_s: float) -> CollectiveSpec:
        """For rank 0: a collective that the other ranks find at this node."""
        return new_collective_spec(kind, host=this_node_ip(), timeout_s=timeout_s)

    def serve(self, spec: RankSpec, address: LinkAddress, log: LogSpec) -> None:
        """Load the model and execute plans until the engine hangs up. Raises what the rank raises."""
        settle_environment(spec)
        open_actor_log(log)
        host = RankHost(spec)
        try:
            serve_rank(address, host.build, host.hang_up)
        finally:
            host.finish()
