// `bench machine`: the machine's own limits, as a table, as JSON, and as an entry of the catalogue
// of devices (--write).
#include "cli/bench/bench.h"
#include "cli/gpu_text.h"

#include <math.h>
#include <time.h>

static double peak_of(const train_machine *m, int type)
{
    return m->loop_flops[type] > m->product_flops[type] ? m->loop_flops[type]
                                                        : m->product_flops[type];
}

// Two hyperthreads of one core reach about the speed of one thread; two cores about twice that.
static bool shares_cores(const train_machine *m)
{
    return m->thread_share < 0.75;
}

// The latency of the largest buffer, which is that of memory.
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
    cli_print(cli, "level     %s, %.2f GHz seen\n", m->level, m->frequency_hz / 1e9);
    cli_print(cli, "threads   %d on %d cores (%d hardware threads)\n", m->threads, m->cores,
              m->hardware_threads);
    if (m->threads > 1) {
        cli_print(cli, "          together %.2f of %d times one: %s\n", m->thread_share, m->threads,
                  shares_cores(m) ? "threads share a core, or others use it"
                                  : "each has a core for itself");
    }
    if (m->other_threads > 0) {
        cli_print(cli, "others    %d thread%s of other programs want to run\n", m->other_threads,
                  text_plural(m->other_threads, "s"));
    }
    cli_print(cli, "caches    %s, %s, %s   memory %s\n", caches[0], caches[1], caches[2],
              text_bytes_human(m->memory_bytes, size));
    for (int i = 0; i < 2; i++) {
        cli_print(cli, "%s %.4g GFLOP/s (register loop %.4g, best GEMM %.4g)\n",
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

// ---- GPUs ---------------------------------------------------------------------------------------

static void print_gpus(cli_context *cli, const nvml_state *gpus, int count)
{
    for (int i = 0; i < count; i++) {
        char size[32];
        text is = {.a = cli->a}, wrong = {.a = cli->a};
        bool is_broken = false;
        if (cli_gpu_text(&gpus[i], &is) != ST_OK) return;
        if (cli_gpu_wrong(&gpus[i], &wrong, &is_broken) != ST_OK) return;
        cli_print(cli, "gpu %-5d %s, %s\n          %s\n", i, gpus[i].name,
                  text_bytes_human(max_i64(gpus[i].memory_bytes, 0), size), is.bytes);
        if (wrong.length > 0) cli_print(cli, "          %s\n", wrong.bytes);
    }
}

enum { GPUS_MAX = 64 };

// All GPUs of the host, by NVML; none without it.
static status gpus_look(cli_context *cli, nvml_state **out, int *count)
{
    nvml_library l;
    const char *why = NULL;
    unsigned all = 0;
    *count = 0;
    TRY(arena_new(cli->a, GPUS_MAX, out));
    if (!nvml_library_open(&l, &why)) return ST_OK;
    const bool has_count = l.count(&all) == 0 && all <= GPUS_MAX;
    for (unsigned i = 0; i < all && has_count; i++) {
        nvml_device d = nvml_find(&l, (int)i);
        if (d != NULL) nvml_look(&l, d, &(*out)[(*count)++]);
    }
    nvml_library_close(&l);
    return ST_OK;
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

static status print_json(cli_context *cli, const train_machine *m, const nvml_state *gpus,
                         int gpu_count)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"bench\": \"machine\", \"cpu\": "));
    TRY(text_add_json(&t, m->cpu));
    TRY(text_add(&t, ", \"level\": \"%s\", \"threads\": %d, \"cores\": %d, ", m->level, m->threads,
                 m->cores));
    TRY(text_add(&t, "\"hardware_threads\": %d, \"thread_share\": %.6g, ", m->hardware_threads,
                 m->thread_share));
    TRY(text_add(&t, "\"other_threads\": %d,\n ", m->other_threads));
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
    if (gpu_count > 0) TRY(text_add(&t, "\"gpus\": ["));
    for (int i = 0; i < gpu_count; i++) {
        if (i > 0) TRY(text_add(&t, ",\n  "));
        TRY(cli_gpu_json(&gpus[i], &t));
    }
    if (gpu_count > 0) TRY(text_add(&t, "],\n "));
    TRY(rows_json(m, &t));
    cli_print_text(cli, &t);
    return ST_OK;
}

// ---- the catalogue's entry ----------------------------------------------------------------------

static double least(double a, double b)
{
    return a < b ? a : b;
}

// Speeds of operations inside steps (bench_calibrate.c).
static status entry_speeds(const train_machine *m, const bench_speeds *s, text *t)
{
    TRY(text_add(t, "  product_share:        # large GEMMs in steps, of that\n"));
    TRY(text_add(t, "    fp32: %.4f\n    bf16: %.4f\n", least(1.0, s->gemm[0] / peak_of(m, 0)),
                 least(1.0, s->gemm[1] / peak_of(m, 1))));
    TRY(text_add(t, "  product_half: {m: %.3g, n: %.3g, k: %.3g}\n", s->gemm_rows_half,
                 s->gemm_half, s->gemm_half));
    TRY(text_add(t, "  attention_share: {forward: %.4f, backward: %.4f}\n",
                 least(1.0, s->attention[0] / peak_of(m, 0)),
                 least(1.0, s->attention[1] / peak_of(m, 0))));
    TRY(text_add(t, "  attention_half: %.4g   # tokens\n", s->attention_half));
    TRY(text_add(t, "  team: %.4f           # all threads on one GEMM, over each on its own\n",
                 s->team));
    TRY(text_add(t, "  pointwise_gops: {fp32: %.4g, bf16: %.4g}\n", s->pointwise[0] / 1e9,
                 s->pointwise[1] / 1e9));
    return text_add(t, "  pointwise_half: %.4g    # columns\n", s->pointwise_half);
}

static status entry_device(const train_machine *m, const bench_speeds *s, text *t)
{
    const double memory = (double)m->memory_bytes;
    TRY(text_add(t, "device:\n  maker: cpu\n"));
    TRY(text_add(t, "  peak_tflops:          # the larger of a register loop and a GEMM\n"));
    TRY(text_add(t, "    fp32: %.6g\n    bf16: %.6g\n", peak_of(m, 0) / 1e12,
                 peak_of(m, 1) / 1e12));
    TRY(entry_speeds(m, s, t));
    TRY(text_add(t, "  vector_tflops: %.6g\n", m->loop_flops[0] / 1e12));
    if (m->memory_bytes > 0) {
        TRY(text_add(t, "  memory_gb: %.6g\n  usable_gib: %.6g\n", memory / 1e9,
                     memory / 1073741824.0));
    }
    TRY(text_add(t, "  memory_gb_s: %.4g       # a copy by all threads, both ways\n",
                 m->copy_bytes_per_s / 1e9));
    TRY(text_add(t, "  memory_share: 1       # it is measured, not printed\n"));
    TRY(text_add(t, "  l2_mb: %.6g\n  clock_mhz: %.6g\n", (double)m->cache_bytes[2] / 1e6,
                 m->frequency_hz / 1e6));
    return text_add(t, "  units: %d\n  launch_us: %.3g        # a barrier of all threads\n",
                    m->threads, 1e6 * m->barrier_s);
}

// Facts that no model needs but people do.
static status entry_remarks(const train_machine *m, text *t)
{
    TRY(text_add(t, "# level %s, %d threads on %d cores of %d hardware threads\n", m->level,
                 m->threads, m->cores, m->hardware_threads));
    TRY(text_add(t, "# thread_share %.3f: all threads' peak over that of one times their number\n",
                 m->thread_share));
    return text_add(t, "# caches of %lld, %lld and %lld bytes, memory answers in %.1f ns\n",
                    (long long)m->cache_bytes[0], (long long)m->cache_bytes[1],
                    (long long)m->cache_bytes[2], 1e9 * memory_latency_s(m));
}

// Bandwidth between ranks: transfers of small models stay in the last-level cache, those of large
// models do not. The geometric mean of a copy inside the cache and one in memory.
static double link_bytes_s(const train_machine *m)
{
    enum { IN_CACHE = 4 << 20 };
    double cached = m->copy_bytes_per_s;
    for (int i = 0; i < m->memory_count; i++) {
        const train_memory_row *row = &m->memory[i];
        if (row->threads == m->threads && row->bytes <= IN_CACHE && row->bytes > IN_CACHE / 2) {
            cached = row->copy;
        }
    }
    return sqrt(cached * m->copy_bytes_per_s) / 2.0 / m->threads;
}

static status entry_write(const bench_context *c, const train_machine *m, const char *path)
{
    cli_context *cli = c->cli;
    bench_speeds speeds;
    char day[32] = "";
    struct tm parts;
    text t = {.a = cli->a}, about = {.a = cli->a};
    const time_t now = (time_t)(cli->h->api->unix_ns(cli->h) / 1000000000);
    if (gmtime_r(&now, &parts) == NULL || strftime(day, sizeof(day), "%Y-%m-%d", &parts) == 0) {
        return fail(ST_INTERNAL, "cannot read the date");
    }
    TRY(text_add(&about, "%s, measured by trireme " TRIREME_VERSION " on %s",
                 m->cpu[0] != '\0' ? m->cpu : "a processor", day));
    TRY(text_add(
        &t, "# A cluster of one machine, as `trireme bench machine --write` measured it: figures\n"
            "# of the machine the best of a few tries, those of operations medians in steps. To be "
            "given as\n"
            "# --cluster FILE; what is not here is as in the catalogue's cpu.\n"));
    TRY(host_write_all(cli->h, path, "", 0)); // reports a write error before the measurement
    TRY(bench_calibrate(c, &speeds));
    TRY(entry_remarks(m, &t));
    TRY(text_add(&t, "base: cpu\nabout: "));
    TRY(text_add_json(&t, about.bytes));
    TRY(text_add(&t, "\ndevices: 1\nnode:\n  devices: 1\n  cpu_cores: %d\n", m->cores));
    if (m->other_threads > 0) TRY(text_add(&t, "  other_threads: %d\n", m->other_threads));
    TRY(text_add(&t, "  host_gb_s: %.4g\n", m->copy_bytes_per_s / 2e9));
    TRY(entry_device(m, &speeds, &t));
    TRY(text_add(&t,
                 "levels:\n  1:                    # ranks that copy from each other at once\n"
                 "    gbit_s: %.4g\n",
                 8e-9 * link_bytes_s(m)));
    return host_write_all(cli->h, path, t.bytes, t.length);
}

status bench_machine(bench_context *c)
{
    cli_context *cli = c->cli;
    train_machine *m = NULL;
    nvml_state *gpus = NULL;
    int gpu_count = 0;
    TRY(arena_new(cli->a, 1, &m));
    TRY(gpus_look(cli, &gpus, &gpu_count));
    TRY(train_machine_measure(cli->h, c->kernels, c->flags->size, m));
    if (c->flags->json) {
        TRY(print_json(cli, m, gpus, gpu_count));
    } else {
        print_table(cli, m);
        print_gpus(cli, gpus, gpu_count);
    }
    return c->flags->write != NULL ? entry_write(c, m, c->flags->write) : ST_OK;
}
