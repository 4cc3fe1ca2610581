// The table and the JSON of the time of each part and its limit, which the benchmarks of whole
// programs (step, generate) share.
#include "cli/bench/bench.h"

#include <math.h>
#include <stdio.h>

#include <sys/resource.h>

int64_t bench_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

status bench_parts_json(text *t, const train_parts *parts, double peak_flops, double bytes_per_s)
{
    TRY(text_add(t, "\"parts\": ["));
    for (int i = 0; i < parts->count; i++) {
        const train_part *p = &parts->rows[i];
        TRY(text_add(t, "%s\n  {\"name\": \"%s\", \"calls\": %lld, \"seconds\": %.9g, ",
                     i == 0 ? "" : ",", p->name, (long long)p->calls, p->seconds));
        TRY(text_add(t, "\"flops\": %.9g, \"bytes\": %.9g, \"bound_s\": %.9g}", p->flops, p->bytes,
                     train_part_bound_s(p, peak_flops, bytes_per_s)));
    }
    return text_add(t, "]");
}

// The table has 80 columns.
void bench_parts_print(cli_context *cli, const char *whole, const train_parts *parts,
                       double peak_flops, double bytes_per_s)
{
    cli_print(cli,
              "\ntime of each part of a %s, and its limit\n"
              "operation     calls        ms share   GFLOP     GB GFLOP/s   GB/s bound ms     x\n",
              whole);
    double bound_s = 0.0, flops = 0.0, bytes = 0.0;
    for (int i = 0; i <= parts->count; i++) {
        const bool is_sum = i == parts->count;
        const train_part sum = {
            .name = whole, .seconds = parts->step_s, .flops = flops, .bytes = bytes};
        const train_part *p = is_sum ? &sum : &parts->rows[i];
        const double bound = is_sum ? bound_s : train_part_bound_s(p, peak_flops, bytes_per_s);
        char calls[24] = "", ratio[24] = "";
        // A GEMM has done it as its epilogue (plan_binding.fused), so it reads no memory.
        const bool within = p->calls > 0 && p->seconds <= 0.0;
        if (p->calls > 0) (void)snprintf(calls, sizeof(calls), "%lld", (long long)p->calls);
        const double bounds = bound > 0.0 ? p->seconds / bound : 0.0;
        if (bounds > 0.0) (void)snprintf(ratio, sizeof(ratio), "%.2f", fmin(bounds, 999.99));
        cli_print(cli, "%-13s%6s%10.2f%6.1f%8.2f%7.2f", p->name, calls, 1e3 * p->seconds,
                  100.0 * p->seconds / parts->step_s, p->flops / 1e9, p->bytes / 1e9);
        if (p->flops + p->bytes > 0.0 && p->seconds > 0.0) {
            cli_print(cli, "%8.1f%7.1f%9.2f%6s", p->flops / p->seconds / 1e9,
                      p->bytes / p->seconds / 1e9, 1e3 * bound, ratio);
        }
        cli_print(cli, within ? "  in a GEMM\n" : "\n");
        bound_s += within ? 0.0 : bound;
        flops += p->flops;
        bytes += p->bytes;
    }
    cli_print(cli,
              "bound: the larger of FLOPs at %.4g GFLOP/s, bytes at %.4g GB/s (a copy);\n"
              "x: the time divided by the bound; below 1, operands came from the cache.\n",
              peak_flops / 1e9, bytes_per_s / 1e9);
}
