"""Generation and the cluster's state."""
from __future__ import annotations

import operator
from collections.abc import Sequence

from tensorplane.call import Call, Stream, new_request_id, unary
from tensorplane.values import GenerateChunk, Status, Worker
from tensorplane.v1 import coordinator_pb2 as v1


def generate(model: str, prompt: str | Sequence[int], *, max_new_tokens: int = 0, temperature: float = 0.0,
             top_k: int = 0, top_p: float = 0.0, seed: int = 0, ignore_eos: bool = False) -> Stream[GenerateChunk]:
    """Tokens after a prompt, as they come; leaving the loop stops the generation on all ranks.

    `prompt`: text, or token ids that are taken as given. `max_new_tokens` 0: as many as fit, at most 256. `temperature`
    0 is greedy; `top_k` and `top_p` 0 are all tokens; equal seeds give equal tokens. `ignore_eos` goes on after an end
    token.
    """
    sampling = v1.Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    request = v1.GenerateRequest(request_id=new_request_id(), model=model, max_new_tokens=max_new_tokens,
                                 ignore_eos=ignore_eos, sampling=sampling)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.SetInParent()
        request.token_ids.ids.extend(operator.index(token) for token in prompt)
    return Stream("Generate", request, lambda response: GenerateChunk(list(response.token_ids), response.text,
                                                                      response.finish_reason))


def _worker(proto: v1.WorkerDescription) -> Worker:
    return Worker(
        id=proto.id,
        host=proto.host,
        device=proto.device,
        healthy=proto.healthy,
        reason=proto.reason,
        memory_limit_bytes=proto.memory_limit_bytes,
        used_bytes=proto.used_bytes,
        pid=proto.pid,
        version=proto.version,
        models=dict(zip(proto.models, proto.ranks)),
        meshes=dict(zip(proto.meshes, proto.mesh_ranks)))


def workers() -> Call[list[Worker]]:
    """Workers and what they hold, by id."""
    return unary("ListWorkers", v1.ListWorkersRequest(), lambda response: [_worker(w) for w in response.workers])


def status() -> Call[Status]:
    """The coordinator's state in numbers."""
    return unary("GetStatus", v1.GetStatusRequest(), lambda response: Status(
        version=response.version, term=response.term, workers_healthy=response.workers_healthy,
        workers=response.workers, models_ready=response.models_ready, models=response.models,
        requests=response.requests, uptime_ms=response.uptime_ms, meshes=response.meshes, tensors=response.tensors))
