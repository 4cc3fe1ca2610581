// `bench machine`: what the machine itself gives, as a table, as JSON, and as an entry of the
// catalogue of devices (--write).
#include "cli/bench.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static double peak_of(const train_machine *m, int type)
{
    return m->loop_flops[type] > m->product_flops[type] ? m->loop_flops[type]
                                                        : m->product_flops[type];
}

// Two threads on one core's units reach about what one does; two cores about twice that.
static bool shares_cores(const train_machine *m)
{
    return m->thread_share < 0.75;
}

// The latency of the largest buffer, that of memory.
static double memory_latency_s(const train_machine *m)
{
    return m->latency_count > 0 ? m->latency[m->latency_count - 1].load_s : 0.0;
}

// ---- table --------------------------------------------------------------------------------------

static void print_table(cli_context *cli, const train_machine *m)
{
    char size[32], caches[3][32];
    for (int i = 0; i < 3; i++) (void)text_bytes_human(m->cache_bytes[i], caches[i]);
    cli_print(cli, "cpu       %s\n", m->cpu[0] != '\0' ? m->cpu : "unknown");
    cli_print(cli, "level     %s, %.2f GHz seen\n", kern_level_name(m->level),
              m->frequency_hz / 1e9);
    cli_print(cli, "threads   %d on %d cores (%d hardware threads)\n", m->threads, m->cores,
              m->hardware_threads);
    if (m->threads > 1) {
        cli_print(cli, "          together %.2f of %d times one: %s\n", m->thread_share, m->threads,
                  shares_cores(m) ? "threads share a core, or others use it"
                                  : "each has a core for itself");
    }
    cli_print(cli, "caches    %s, %s, %s   memory %s\n", caches[0], caches[1], caches[2],
              text_bytes_human(m->memory_bytes, size));
    for (int i = 0; i < 2; i++) {
        cli_print(cli, "%s %.4g GFLOP/s (register loop %.4g, best product %.4g)\n",
                  i == 0 ? "peak fp32" : "peak bf16", peak_of(m, i) / 1e9, m->loop_flops[i] / 1e9,
                  m->product_flops[i] / 1e9);
    }
    cli_print(cli, "barrier   %.2f us, %d threads\n", 1e6 * m->barrier_s, m->threads);
    cli_print(cli, "\nbandwidth, GB/s     threads     read    write     copy (both ways)\n");
    for (int i = 0; i < m->memory_count; i++) {
        const train_memory_row *row = &m->memory[i];
        cli_print(cli, "%-20s%7d%9.1f%9.1f%9.1f\n", text_bytes_human(row->bytes, size),
                  row->threads, row->read / 1e9, row->write / 1e9, row->copy / 1e9);
    }
    cli_print(cli, "\nlatency of a load that depends on the one before, ns\n");
    for (int i = 0; i < m->latency_count; i++) {
        cli_print(cli, "%-20s%7.1f\n", text_bytes_human(m->latency[i].bytes, size),
                  1e9 * m->latency[i].load_s);
    }
}

// ---- JSON ---------------------------------------------------------------------------------------

static status rows_json(const train_machine *m, text *t)
{
    TRY(text_add(t, "\"memory\": ["));
    for (int i = 0; i < m->memory_count; i++) {
        const train_memory_row *row = &m->memory[i];
        TRY(text_add(t, "%s\n  {\"bytes\": %lld, \"threads\": %d, ", i == 0 ? "" : ",",
                     (long long)row->bytes, row->threads));
        TRY(text_add(t,
                     "\"read_bytes_per_s\": %.6g, \"write_bytes_per_s\": %.6g, "
                     "\"copy_bytes_per_s\": %.6g}",
                     row->read, row->write, row->copy));
    }
    TRY(text_add(t, "],\n \"latency\": ["));
    for (int i = 0; i < m->latency_count; i++) {
        TRY(text_add(t, "%s\n  {\"bytes\": %lld, \"load_s\": %.6g}", i == 0 ? "" : ",",
                     (long long)m->latency[i].bytes, m->latency[i].load_s));
    }
    return text_add(t, "]}\n");
}

static status print_json(cli_context *cli, const train_machine *m)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"bench\": \"machine\", \"cpu\": "));
    TRY(text_add_json(&t, m->cpu));
    TRY(text_add(&t, ", \"level\": \"%s\", \"threads\": %d, \"cores\": %d, ",
                 kern_level_name(m->level), m->threads, m->cores));
    TRY(text_add(&t, "\"hardware_threads\": %d, \"thread_share\": %.6g,\n ", m->hardware_threads,
                 m->thread_share));
    TRY(text_add(&t, "\"frequency_hz\": %.6g, \"cache_bytes\": [%lld, %lld, %lld], ",
                 m->frequency_hz, (long long)m->cache_bytes[0], (long long)m->cache_bytes[1],
                 (long long)m->cache_bytes[2]));
    TRY(text_add(&t, "\"memory_bytes\": %lld,\n ", (long long)m->memory_bytes));
    static const char *const types[] = {"fp32", "bf16"};
    for (int i = 0; i < 2; i++) {
        TRY(text_add(&t,
                     "\"%s\": {\"peak_flops\": %.6g, \"loop_flops\": %.6g, "
                     "\"product_flops\": %.6g},\n ",
                     types[i], peak_of(m, i), m->loop_flops[i], m->product_flops[i]));
    }
    TRY(text_add(&t, "\"barrier_s\": %.6g, \"copy_bytes_per_s\": %.6g,\n ", m->barrier_s,
                 m->copy_bytes_per_s));
    TRY(rows_json(m, &t));
    cli_print_text(cli, &t);
    return ST_OK;
}

// ---- the catalogue's entry ----------------------------------------------------------------------

// "AMD EPYC 7763 64-Core Processor" -> "amd-epyc-7763-64-core-processor"
static void name_of(const char *cpu, char out[64])
{
    int n = 0;
    for (const char *s = cpu; *s != '\0' && n < 63; s++) {
        const bool is_upper = *s >= 'A' && *s <= 'Z', is_digit = *s >= '0' && *s <= '9';
        if (is_upper || is_digit || (*s >= 'a' && *s <= 'z')) {
            out[n++] = (char)(is_upper ? *s - 'A' + 'a' : *s);
        } else if (n > 0 && out[n - 1] != '-') {
            out[n++] = '-';
        }
    }
    while (n > 0 && out[n - 1] == '-') n--;
    out[n] = '\0';
    if (n == 0) (void)snprintf(out, 64, "cpu");
}

static status entry_speeds(const train_machine *m, text *t)
{
    const train_memory_row *memory = &m->memory[m->memory_count - 1];
    TRY(text_add(t, "peak_gflops:            # the larger of a register loop and a product\n"));
    TRY(text_add(t, "  fp32: %.1f\n  bf16: %.1f\n", peak_of(m, 0) / 1e9, peak_of(m, 1) / 1e9));
    TRY(text_add(t, "product_gflops:         # the best matrix product\n"));
    TRY(text_add(t, "  fp32: %.1f\n  bf16: %.1f\n", m->product_flops[0] / 1e9,
                 m->product_flops[1] / 1e9));
    TRY(text_add(t, "memory_gb_per_s:        # all threads, buffers of %lld bytes in all\n",
                 (long long)memory->bytes));
    TRY(text_add(t, "  read: %.2f\n  write: %.2f\n  copy: %.2f            # both ways\n",
                 memory->read / 1e9, memory->write / 1e9, memory->copy / 1e9));
    TRY(text_add(t, "memory_latency_ns: %.1f # a load that depends on the one before\n",
                 1e9 * memory_latency_s(m)));
    return text_add(t, "barrier_us: %.2f        # all threads, one task each\n",
                    1e6 * m->barrier_s);
}

static status entry_write(cli_context *cli, const train_machine *m, const char *path)
{
    char name[64], day[32] = "";
    struct tm parts;
    text t = {.a = cli->a};
    const time_t now = (time_t)(cli->h->api->unix_ns(cli->h) / 1000000000);
    if (gmtime_r(&now, &parts) == NULL || strftime(day, sizeof(day), "%Y-%m-%d", &parts) == 0) {
        return fail(ST_INTERNAL, "the date cannot be told");
    }
    name_of(m->cpu, name);
    TRY(text_add(&t,
                 "# A device as `trireme bench machine --write` measured it, not as a data sheet\n"
                 "# says: each figure is the best of a few tries, other programs may have run.\n"));
    TRY(text_add(&t, "name: %s\nkind: cpu\ncpu: \"%s\"\n", name, m->cpu));
    TRY(text_add(&t, "measured_by: trireme " TRIREME_VERSION "\nmeasured_on: %s\n", day));
    TRY(text_add(&t, "level: %s\nthreads: %d\n", kern_level_name(m->level), m->threads));
    TRY(text_add(&t, "cores: %d\nhardware_threads: %d\n", m->cores, m->hardware_threads));
    TRY(text_add(&t,
                 "thread_share: %.3f     # of all threads' peak, over that of one times their "
                 "number\n",
                 m->thread_share));
    TRY(text_add(&t, "frequency_ghz: %.3f    # seen in a chain of additions\n",
                 m->frequency_hz / 1e9));
    TRY(text_add(&t, "memory_bytes: %lld\ncache_bytes:            # 0: not known\n",
                 (long long)m->memory_bytes));
    for (int i = 0; i < 3; i++) {
        TRY(text_add(&t, "  l%d: %lld\n", i + 1, (long long)m->cache_bytes[i]));
    }
    TRY(entry_speeds(m, &t));
    return host_write_all(cli->h, path, t.bytes, t.length);
}

status bench_machine(bench_context *c)
{
    cli_context *cli = c->cli;
    train_machine *m = NULL;
    TRY(arena_new(cli->a, 1, &m));
    TRY(train_machine_measure(cli->h, c->level, c->threads, c->flags->size, m));
    if (c->flags->json) {
        TRY(print_json(cli, m));
    } else {
        print_table(cli, m);
    }
    return c->flags->write != NULL ? entry_write(cli, m, c->flags->write) : ST_OK;
}
