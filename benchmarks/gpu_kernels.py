"""The Triton kernels on one GPU: first each against float64 beside the plain form, then the time of both.

    python3 benchmarks/gpu_kernels.py [--seconds 90]

A check passes where the kernel's error is at most twice that of the plain form in the same precision. Times are medians
of CUDA events with the L2 cache emptied before each run; a time loop is captured as a CUDA graph, as in training.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from regard.core.attend import Memory, attend
from regard.core.normalise import causal_softmax, softmax
from regard.core.products import product_dtype
from regard.core.scores import scaled_dot
from regard.kernels.add_norm import add_norm
from regard.kernels.additive_attention import AttentionLoop, additive_scores
from regard.kernels.cells import gru, gru_cell, lstm_cell
from regard.kernels.cross_entropy import linear_cross_entropy
from regard.kernels.linear_relu import LinearReLU
from regard.kernels.short_attention import short_attend, split_heads
from regard.kernels.torch_attention import fused_attend

BEGUN = time.perf_counter()
GIB = 2**30
Form = Callable[..., tuple[Tensor, ...]]


def random(*shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape, device="cuda")).to(dtype).requires_grad_()


def additive_attend(
    query: Tensor, keys: Tensor, v: Tensor, values: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    scores = additive_scores(query, keys, v)
    weights = torch.softmax(scores, dim=-1) if mask is None else softmax(scores, mask)
    return weights.to(product_dtype(values)) @ values, weights


# The plain forms.


def plain_attend(query: Tensor, keys: Tensor, v: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    scores = torch.tanh(query[:, :, None] + keys[:, None]) @ v
    weights = torch.softmax(scores, dim=-1) if mask is None else softmax(scores, mask)
    return weights @ values, weights


def plain_loop(query: Tensor, keys: Tensor, v: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    steps = [plain_attend(q[:, None], keys, v, values, mask) for q in query.unbind(1)]
    return torch.cat([c for c, _ in steps], dim=1), torch.cat([w for _, w in steps], dim=1)


def fused_loop(query: Tensor, keys: Tensor, v: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    loop = AttentionLoop(keys, v, values, mask)
    steps = [loop(q) for q in query.unbind(1)]
    return torch.stack([c for c, _ in steps], dim=1), torch.stack([w for _, w in steps], dim=1)


def plain_loss(hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor]:
    low = hidden.dtype != torch.float64
    with torch.autocast("cuda", torch.bfloat16, enabled=low and AUTOCAST):
        logits = F.linear(hidden, weight, bias)
        return (F.cross_entropy(logits, target, ignore_index=0, label_smoothing=smoothing, reduction="sum"),)


def fused_loss(hidden: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor]:
    with torch.autocast("cuda", torch.bfloat16, enabled=AUTOCAST):
        return linear_cross_entropy(hidden, weight, bias, target, smoothing, 0)[:1]


AUTOCAST = True


def fused_norm(x: Tensor, added: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor]:
    return (add_norm(x, added, gamma, beta, 1e-5),)


def plain_norm(x: Tensor, added: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor]:
    total = x.to(gamma.dtype) + added.to(gamma.dtype)
    return (F.layer_norm(total, gamma.shape, gamma, beta, 1e-5).to(x.dtype),)


def projected(projections: Tensor, mask: Tensor | None, causal: bool, kind: str) -> tuple[Tensor]:
    """Self-attention of eight heads: projections of queries, keys and values [B, T, 3D] -> [B, T, D]."""
    if kind == "kernel":
        query, keys, values = split_heads(projections, 3, 8)
        context = short_attend(query, Memory(keys, values, mask), True, causal)
    else:
        query, keys, values = projections.unflatten(-1, (3, 8, -1)).permute(2, 0, 3, 1, 4).unbind()
        if kind == "eager":
            memory = Memory(keys, values, mask)
            context = attend(query, memory, scaled_dot, causal_softmax if causal else softmax).context
        else:
            context = fused_attend(query, Memory(keys, values, mask), True, causal)
    return (context.transpose(1, 2).flatten(2),)


def plain_lstm(drive: Tensor, pushed: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (drive + pushed).chunk(4, dim=-1)
    after = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * after.tanh(), after


def fused_lstm(*inputs: Tensor) -> tuple[Tensor, ...]:
    return lstm_cell(*inputs)[:2]


def plain_gru(drive: Tensor, state: Tensor, U_gates: Tensor, U: Tensor, keep: bool) -> tuple[Tensor]:
    n = state.shape[-1]
    reset, update = (drive[..., : 2 * n] + state.to(U.dtype) @ U_gates.T).sigmoid().chunk(2, dim=-1)
    new = (drive[..., 2 * n :] + (reset * state).to(U.dtype) @ U.T).tanh()
    return (update * state + (1 - update) * new if keep else update * new + (1 - update) * state,)


def fused_gru(drive: Tensor, state: Tensor, U_gates: Tensor, U: Tensor, keep: bool) -> tuple[Tensor, ...]:
    return gru(drive, state, lambda x: x.to(U.dtype) @ U_gates.T, lambda x: x @ U.T, keep)[:1]


def plain_reset_after(driven: Tensor, pushed: Tensor, state: Tensor, keep: bool) -> tuple[Tensor]:
    n = state.shape[-1]
    reset, update = (driven + pushed)[..., : 2 * n].sigmoid().chunk(2, dim=-1)
    new = (driven[..., 2 * n :] + reset * pushed[..., 2 * n :]).tanh()
    return (update * state + (1 - update) * new if keep else update * new + (1 - update) * state,)


def single(form: Callable[..., Tensor]) -> Form:
    return lambda *x: (form(*x),)


# Checks.


def results(form: Form, inputs: list[Tensor], probes: list[Tensor]) -> list[Tensor]:
    outputs = form(*inputs)
    total = sum((out * probe.to(out.dtype)).sum() for out, probe in zip(outputs, probes, strict=True))
    return [*outputs, *torch.autograd.grad(total, inputs)]


def check(name: str, kernel: Form, plain: Form, inputs: list[Tensor]) -> bool:
    try:
        exact_inputs = [x.detach().double().requires_grad_() for x in inputs]
        with torch.no_grad():
            probes = [torch.randn_like(out) for out in plain(*exact_inputs)]
        exact = results(plain, exact_inputs, probes)
        theirs = results(plain, inputs, probes)
        ours = results(kernel, inputs, probes)
        torch.cuda.synchronize()
    except Exception as error:
        print(f"FAIL  {name}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
        return False
    errors, fine = [], True
    for a, b, right in zip(ours, theirs, exact, strict=True):
        size = right.norm().clamp(min=1e-30)
        error, plain_error = ((a - right).norm() / size).item(), ((b - right).norm() / size).item()
        grain = 3e-6 if a.dtype == torch.float32 and inputs[0].dtype == torch.float32 else 2e-3
        if AUTOCAST and "loss" in name:
            grain = 2e-3
        fine &= error <= 2 * plain_error + grain  # False for NaN
        errors.append(f"{error:.0e}/{plain_error:.0e}")
    print(f"{'PASS' if fine else 'FAIL'}  {name}: {' '.join(errors)}", flush=True)
    return fine


def checks(limit: float) -> None:
    global AUTOCAST
    outcomes = []

    def late() -> bool:
        return time.perf_counter() - BEGUN > limit

    # Odd everything; one slot; several tiles with a width that is no power of two.
    for dtype in (torch.bfloat16, torch.float32):
        for B, T, S, D, Dv in [(3, 70, 130, 200, 72), (2, 3, 5, 7, 11), (2, 2, 1, 64, 33), (4, 16, 48, 1000, 2000)]:
            if late():
                print("SKIP  the remaining checks: out of time", flush=True)
                return
            inputs = [random(*shape, dtype=dtype) for shape in ((B, T, D), (B, S, D), (D,), (B, S, Dv))]
            with torch.no_grad():
                inputs[2] *= 2 * D**-0.5
            mask = torch.rand(B, T, S, device="cuda") > 0.3
            mask[0, 0] = False
            name = f"{str(dtype)[6:]} {B}x{T}x{S}x{D}x{Dv}"
            fused = partial(additive_attend, mask=mask)
            outcomes.append(check(f"additive all pairs {name}", fused, partial(plain_attend, mask=mask), inputs))
            row = mask[:, :1]
            plain = partial(plain_attend, mask=row)
            outcomes.append(check(f"additive loop {name}", partial(fused_loop, mask=row), plain, inputs))
        for AUTOCAST in {dtype == torch.bfloat16, False}:
            for N, D, V in [(37, 50, 1001), (64, 128, 8000)]:
                target = torch.randint(V, (N,), device="cuda")
                target[:3] = 0
                inputs = [random(N, D, dtype=torch.float32), random(V, D, dtype=torch.float32, scale=0.1)]
                inputs.append(random(V, dtype=torch.float32))
                for smoothing in (0.0, 0.1):
                    forms = (partial(form, target=target, smoothing=smoothing) for form in (fused_loss, plain_loss))
                    name = f"loss {'autocast' if AUTOCAST else 'float32'} {N}x{D}x{V} smoothing {smoothing}"
                    outcomes.append(check(name, *forms, inputs))
        for N, D in [(3, 7), (1001, 512), (5, 1000)]:
            inputs = [
                random(N, D, dtype=dtype),
                random(N, D, dtype=dtype),
                *(random(D, dtype=torch.float32) for _ in "gb"),
            ]
            outcomes.append(check(f"norm {str(dtype)[6:]} {N}x{D}", fused_norm, plain_norm, inputs))
            inputs = [random(*shape, dtype=dtype) for shape in ((N, D), (64, D), (64,))]
            forms = single(LinearReLU.apply), lambda *x: (F.linear(*x).relu(),)
            outcomes.append(check(f"linear relu {str(dtype)[6:]} {N}x{D}", *forms, inputs))
        for B, T, D in [(3, 2, 64), (5, 32, 512), (2, 33, 512), (2, 128, 512), (2, 100, 1024)]:
            if dtype == torch.bfloat16:
                mask = torch.arange(T, device="cuda") < torch.randint(0, T, (B, 1), device="cuda")
                for causal in (False, True):
                    forms = (partial(projected, mask=mask[:, None, None], causal=causal, kind=kind)
                             for kind in ("kernel", "eager"))  # fmt: skip
                    outcomes.append(check(f"short {B}x{T}x{D} causal={causal}", *forms, [random(B, T, 3 * D)]))
        for B, n in [(3, 7), (80, 1000)]:
            state = random(B, n, dtype=torch.float32)
            pushed = {k: random(B, k * n, dtype=dtype) for k in (3, 4)}
            drive = {k: random(B, 5, k * n, dtype=dtype)[:, 1] for k in (3, 4)}  # one step of many
            matrices = [random(k * n, n, dtype=dtype, scale=n**-0.5) for k in (2, 1)]
            name = f"{str(dtype)[6:]} {B}x{n}"
            outcomes.append(check(f"lstm {name}", fused_lstm, plain_lstm, [drive[4], pushed[4], state]))
            for keep in (True, False):
                forms = partial(fused_gru, keep=keep), partial(plain_gru, keep=keep)
                outcomes.append(check(f"gru {name} keep={keep}", *forms, [drive[3], state, *matrices]))
                forms = single(partial(gru_cell, keep=keep)), partial(plain_reset_after, keep=keep)
                outcomes.append(check(f"gru, reset after {name} keep={keep}", *forms, [drive[3], pushed[3], state]))
    print(f"{sum(outcomes)} of {len(outcomes)} checks passed after {time.perf_counter() - BEGUN:.0f} s", flush=True)


# Times.


def both_ways(form: Form, inputs: list[Tensor]) -> Callable[[], Any]:
    """Forward, and backward from ones for the first output."""
    probe: list[Tensor] = []

    def run() -> Any:
        output = form(*inputs)[0]
        if not probe:
            probe.append(torch.ones_like(output))
        return torch.autograd.grad(output, inputs, probe[0], allow_unused=True)

    return run


def captured(run: Callable[[], Any]) -> Callable[[], Any]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def measure(name: str, run: Callable[[], Any], capture: bool = False, runs: int = 7, note: str = "") -> None:
    try:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        if capture:
            run = captured(run)
        run()
        flush = torch.empty(2**26, dtype=torch.int32, device="cuda")  # 256 MiB, more than the L2 cache
        times = []
        for _ in range(runs):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        print(f"{name:64s} {statistics.median(times):9.3f} ms {peak / GIB:8.3f} GiB  {note}", flush=True)
    except Exception as error:
        print(f"{name:64s} ERROR {type(error).__name__}: {str(error)[:600]}", flush=True)


def times(limit: float) -> None:
    for B, T, S, D, goal in [
        (8, 2048, 2048, 512, "goal 25 ms, 1 GiB"),
        (64, 128, 128, 1024, "goal 2 ms"),
        (64, 50, 50, 1000, ""),
        (32, 512, 512, 512, ""),
    ]:
        inputs = [random(B, T, D), random(B, S, D), random(D, scale=D**-0.5), random(B, S, D)]
        name, fused = f"additive {B}x{T}x{S}x{D}", partial(additive_attend, mask=None)
        measure(f"{name} forward + backward, kernel", both_ways(fused, inputs), note=goal)
        with torch.no_grad():
            measure(f"{name} forward, kernel", partial(fused, *inputs))
        if B == 64:  # so short that launching takes longer
            measure(f"{name} forward + backward, graph, kernel", both_ways(fused, inputs), capture=True)
            with torch.no_grad():
                measure(f"{name} forward, graph, kernel", partial(fused, *inputs), capture=True)
        plain = partial(plain_attend, mask=None)
        measure(f"{name} forward + backward, eager", both_ways(plain, inputs), runs=3)
    for B, T, S, D in [(80, 50, 50, 1000), (256, 30, 30, 1000), (512, 20, 150, 512)]:
        inputs = [random(B, T, D), random(B, S, D), random(D, scale=D**-0.5), random(B, S, 2 * D)]
        mask = torch.ones(B, 1, S, dtype=torch.bool, device="cuda")
        for kind, form in (("kernel", fused_loop), ("eager", plain_loop)):
            name = f"additive loop B{B} S{S} D{D}, {T} steps, graph, {kind}"
            measure(name, both_ways(partial(form, mask=mask), inputs), capture=True)
        with torch.no_grad():
            measure(f"additive loop B{B} S{S} D{D}, {T} steps, forward, graph, kernel",
                    partial(fused_loop, *inputs, mask=mask), capture=True)  # fmt: skip
    for N, D, V in [(16384, 512, 32000), (4000, 512, 30000)]:
        target = torch.randint(1, V, (N,), device="cuda")
        inputs = [random(N, D), random(V, D, dtype=torch.float32, scale=0.05), random(V, dtype=torch.float32)]
        for kind, form in (("kernel", fused_loss), ("eager", plain_loss)):
            run = both_ways(partial(form, target=target, smoothing=0.1), inputs)
            measure(f"loss {N}x{D}x{V} smoothing 0.1, graph, {kind}", run, capture=True)
    inputs = [random(512, 32, 512), random(512, 32, 512), *(random(512, dtype=torch.float32) for _ in "gb")]
    for kind, form in (("kernel", fused_norm), ("eager", plain_norm)):
        measure(f"norm 16384x512, graph, {kind}", both_ways(form, inputs), capture=True)
    inputs = [random(16384, 512), random(2048, 512), random(2048)]
    for kind, form in (("kernel", LinearReLU.apply), ("eager", lambda *x: F.linear(*x).relu())):
        measure(f"linear relu 16384x512x2048, graph, {kind}", both_ways(single(form), inputs), capture=True)
    for B, T in [(512, 32), (128, 128)]:
        mask = torch.ones(B, 1, 1, T, dtype=torch.bool, device="cuda")
        for name, form in [("padding", partial(projected, mask=mask, causal=False)),
                           ("causal", partial(projected, mask=None, causal=True))]:  # fmt: skip
            for kind in ("kernel", "torch's"):
                once = both_ways(partial(form, kind=kind), [random(B, T, 1536)])
                measure(f"attention {B}x{T}x512, {name}, graph, {kind}", once, capture=True)
    for B, n in [(80, 1000), (256, 1000)]:
        state = random(B, n, dtype=torch.float32)
        pushed, drive = ({k: random(B, k * n) for k in (3, 4)} for _ in range(2))
        matrices = [random(k * n, n, scale=n**-0.5) for k in (2, 1)]
        for name, fused, plain, inputs in [
            ("lstm", fused_lstm, plain_lstm, [drive[4], pushed[4], state]),
            ("gru", partial(fused_gru, keep=True), partial(plain_gru, keep=True), [drive[3], state, *matrices]),
            ("gru, reset after", single(partial(gru_cell, keep=True)), partial(plain_reset_after, keep=True),
             [drive[3], pushed[3], state]),
        ]:  # fmt: skip
            for kind, form in (("kernel", fused), ("eager", plain)):
                if time.perf_counter() - BEGUN > limit:
                    print("SKIP  the remaining times: out of time", flush=True)
                    return
                once = both_ways(form, inputs)
                measure(f"{name} {B}x{n}, 50 times, graph, {kind}", lambda once=once: [once() for _ in range(50)],
                        capture=True)  # fmt: skip


def profile() -> None:
    """The kernels of three rows of the table, by their share of the time."""
    N, D, V = 16384, 512, 32000
    target = torch.randint(1, V, (N,), device="cuda")
    loss = [random(N, D), random(V, D, dtype=torch.float32, scale=0.05), random(V, dtype=torch.float32)]
    pairs = [random(8, 2048, 512), random(8, 2048, 512), random(512, scale=0.05), random(8, 2048, 512)]
    steps = [random(80, 50, 1000), random(80, 50, 1000), random(1000, scale=0.05), random(80, 50, 2000)]
    for name, run in [
        ("loss 16384x512x32000", both_ways(partial(fused_loss, target=target, smoothing=0.1), loss)),
        ("additive 8x2048x2048x512", both_ways(partial(additive_attend, mask=None), pairs)),
        ("additive loop B80 S50 D1000, 50 steps", both_ways(partial(fused_loop, mask=None), steps)),
    ]:
        run()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            run()
            torch.cuda.synchronize()
        print(name)
        rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
        for row in rows[:9]:
            print(f"  {row.self_device_time_total / 1000:9.3f} ms {row.count:5d} x {row.key[:100]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90.0, help="after this time nothing new is begun")
    parser.add_argument("--no-checks", action="store_true", help="times only")
    parser.add_argument("--profile", action="store_true", help="the kernels inside three of the rows as well")
    limit = (arguments := parser.parse_args()).seconds
    if not torch.cuda.is_available():
        parser.error("A CUDA device is needed; none was found. On a CPU run tests/test_kernels_triton.py.")
    torch.manual_seed(1)
    import triton

    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__, flush=True)
    if not arguments.no_checks:
        checks(0.65 * limit)
    globals()["AUTOCAST"] = True
    times(limit)
    if arguments.profile:
        profile()
    print(f"finished after {time.perf_counter() - BEGUN:.0f} s")


if __name__ == "__main__":
    main()
