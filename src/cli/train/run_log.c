// Log lines of a run. A line goes to the terminal and to two files: log.txt holds rank 0's output,
// and logs/rank-00000.log (one per rank) holds the same with times. A terminal also has a status
// line at the bottom, which is rewritten and never reaches a file.
//
// Watcher functions cannot fail: the log keeps an error and reports it at the end.
#include "cli/train/run_log.h"

#include "cli/train/signals.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOG_FILES = 2, LIVE_INTERVAL_NS = 100000000, WARNINGS_KEPT = 8 };

struct run_log {
    cli_context *cli;
    const run_config *r;
    arena *lines; // memory of one line
    bool quiet, is_json, live_shown, stop_said;
    int rank;
    bool is_kept;           // another process keeps this process's output as the rank's log
    file *files[LOG_FILES]; // log.txt, logs/rank-00000.log
    bool files_tried;
    text early; // lines from before the folder was there
    status first_error;
    error_record error;
    int64_t warning_count;
    char *warnings[WARNINGS_KEPT];
    int64_t live_ns, step, steps; // of the run: the last finished one, and all
    double peak_flops;
    const char *name; // in front of lines on the terminal; NULL: none
};

// ---- lines --------------------------------------------------------------------------------------

// Logging continues without the failed file, and the error record of the run stays unchanged.
static void keep(run_log *log, status st)
{
    if (st == ST_OK) return;
    if (log->first_error == ST_OK) {
        log->first_error = st;
        log->error = *error_last();
    }
}

// Rank 0 makes the folder, and another rank may have something to say before.
static bool folder_is_there(const run_log *log)
{
    char *path = NULL;
    file_info info;
    return path_join(log->lines, log->r->run.dir, "logs", &path) == ST_OK &&
           log->cli->h->api->path_info(log->cli->h, path, &info) == ST_OK &&
           info.kind == FILE_KIND_FOLDER;
}

static void files_open(run_log *log)
{
    char rank_name[40];
    const char *const names[LOG_FILES] = {"log.txt", rank_name};
    const bool wanted[LOG_FILES] = {log->rank == 0, !log->is_kept};
    if (log->files_tried || (log->rank != 0 && !folder_is_there(log))) return;
    (void)snprintf(rank_name, sizeof(rank_name), "logs/rank-%05d.log", log->rank);
    log->files_tried = true;
    const host *h = log->cli->h;
    for (int i = 0; i < LOG_FILES; i++) {
        char *path = NULL;
        if (!wanted[i]) continue;
        status st = path_join(log->cli->a, log->r->run.dir, names[i], &path);
        if (st == ST_OK) st = h->api->file_open(h, path, FILE_APPEND, &log->files[i]);
        keep(log, st);
    }
}

static status line_write(run_log *log, int file_idx, const char *line)
{
    text t = {.a = log->lines};
    if (file_idx == 1) {
        char when[32];
        struct tm parts;
        const time_t now = (time_t)(log->cli->h->api->unix_ns(log->cli->h) / 1000000000);
        if (gmtime_r(&now, &parts) == NULL) return fail(ST_IO, "cannot read the date");
        if (strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ ", &parts) == 0) when[0] = '\0';
        TRY(text_add(&t, "%s", when));
    }
    TRY(text_add(&t, "%s\n", line));
    return log->cli->h->api->file_write(log->files[file_idx], t.bytes, t.length);
}

static void files_write(run_log *log, const char *line)
{
    for (int i = 0; i < LOG_FILES; i++) {
        if (log->files[i] == NULL) continue;
        const status st = line_write(log, i, line);
        keep(log, st);
    }
}

static void files_put(run_log *log, const char *line)
{
    files_open(log);
    if (!log->files_tried) {
        const status st = text_add(&log->early, "%s\n", line);
        keep(log, st);
        return;
    }
    for (char *from = log->early.bytes; from != NULL && *from != '\0';) {
        char *end = strchr(from, '\n');
        *end = '\0';
        files_write(log, from);
        from = end + 1;
    }
    log->early = (text){.a = log->early.a};
    files_write(log, line);
}

static void live_clear(run_log *log)
{
    if (log->live_shown) cli_print(log->cli, "\r\033[K");
    log->live_shown = false;
}

// Sends one line to all its outputs.
static void put(run_log *log, bool on_terminal, const char *line)
{
    if (on_terminal) {
        live_clear(log);
        if (log->name != NULL) cli_print(log->cli, "%-10s ", log->name);
        cli_print(log->cli, "%s\n", line);
        cli_push(log->cli); // a reader of the log sees whole lines
    }
    files_put(log, line);
}

static void put_lines(run_log *log, bool on_terminal, char *lines)
{
    for (char *line = lines; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end != NULL) *end = '\0';
        put(log, on_terminal, line);
        line = end == NULL ? NULL : end + 1;
    }
}

static void say(run_log *log, const char *format, ...) PRINTF_LIKE(2, 3);
static void say(run_log *log, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args); // a truncated line is still valid
    va_end(args);
    put(log, !log->quiet, line);
}

// ---- reports of the run -------------------------------------------------------------------------

static const char *flops_human(double flops, char buffer[32])
{
    if (!(flops > 0.0)) return "unknown";
    const bool tera = flops >= 1e12;
    (void)snprintf(buffer, 32, "%.3g %s", flops / (tera ? 1e12 : 1e9),
                   tera ? "TFLOP/s" : "GFLOP/s");
    return buffer;
}

static status print_target(const train_start *s, text *out)
{
    const run_config *r = s->config;
    char steps[40], tokens[32];
    const double planned =
        (double)r->train.steps * (double)r->train.global_batch * (double)r->train.seq;
    TRY(text_add(out, "target   %s step%s  %s tokens", text_grouped(r->train.steps, steps),
                 text_plural(r->train.steps, "s"), text_count_human(planned, tokens)));
    if (r->eval.every > 0) TRY(text_add(out, "  val every %lld", (long long)r->eval.every));
    if (r->checkpoint.every == RUN_EVERY_AUTO) {
        TRY(text_add(out, "  checkpoint auto (keep %lld)", (long long)r->checkpoint.keep));
    } else if (r->checkpoint.every > 0) {
        TRY(text_add(out, "  checkpoint every %lld (keep %lld)", (long long)r->checkpoint.every,
                     (long long)r->checkpoint.keep));
    } else {
        TRY(text_add(out, "  checkpoint at the end"));
    }
    return text_add(out, "\n");
}

static const char *const precisions[] = {"fp32", "bf16", "fp16"};

// The copies of the state that outlive a lost rank.
static status copies_print(const run_config *r, text *out)
{
    const int64_t every = r->resilience.buddy.every;
    if (r->resilience.mode == RUN_RESILIENCE_OFF) return ST_OK;
    return text_add(out, "copies   of the state in memory, every %lld step%s\n", (long long)every,
                    text_plural(every, "s"));
}

// The recomputation, and whether the program chose it.
static status recompute_print(const run_config *r, const decoder_spec *m, text *out)
{
    static const char *const names[] = {"none", "selective", "full"};
    if (r->train.recompute == RUN_RECOMPUTE_NONE) return text_add(out, "\n");
    TRY(text_add(out, "   recompute %s", names[r->train.recompute]));
    if (r->train.recompute_layers > 0) {
        TRY(text_add(out, " (%lld of %lld layers)", (long long)r->train.recompute_layers,
                     (long long)m->layers));
    }
    if (r->train.recompute_cost <= 0.0) return text_add(out, "\n");
    return text_add(out, " (chosen: %.1f%% more work)\n", 100.0 * r->train.recompute_cost);
}

// How the collectives of GPUs travel, and what would spare the way through the host.
static status ways_print(const run_config *r, const exec_ways *w, text *out)
{
    const int64_t all = w->library + w->peers + w->host;
    if (all == 0) return ST_OK;
    TRY(text_add(out, "gpus     %lld communication%s of a step: ", (long long)all,
                 text_plural(all, "s")));
    if (w->library > 0) TRY(text_add(out, "%lld by NCCL, ", (long long)w->library));
    if (w->peers > 0) {
        TRY(text_add(out, "%lld between the GPUs' memories, ", (long long)w->peers));
    }
    TRY(text_add(out, "%lld through the host's memory", (long long)w->host));
    const bool is_auto = r->comm.transport == RUN_TRANSPORT_AUTO && w->host > 0;
    return text_add(out, "%s\n", is_auto ? " (comm.transport = peer or nccl spares that)" : "");
}

status run_log_print_head(const char *run_dir, text *out)
{
    return text_add(out, "trireme %s  run %s  dir %s\n", TRIREME_VERSION, path_base_name(run_dir),
                    run_dir);
}

status run_log_print_start(const train_start *s, text *out)
{
    const run_config *r = s->config;
    const decoder_spec *m = s->spec;
    char count[32], need[32], have[32], tokens[40], seq[40];
    if (s->resumed) {
        TRY(text_add(out, "start    (continued after step %lld)\n", (long long)s->first_step - 1));
    } else {
        TRY(text_add(out, "start    (new)\n"));
    }
    TRY(text_add(out, "model    %s  %lld layer%s  d=%lld  heads %lld/%lld  vocab %s   %s params\n",
                 m->arch, (long long)m->layers, text_plural(m->layers, "s"), (long long)m->dim,
                 (long long)m->heads, (long long)m->kv_heads, text_grouped(m->vocab, tokens),
                 text_count_human((double)s->parameters, count)));
    TRY(text_add(out, "layout   "));
    if (s->ranks > 1) {
        TRY(run_config_print_layout(r, out));
        TRY(text_add(out, " · "));
        if (s->compressed != NULL) TRY(text_add(out, "gradients %s · ", s->compressed->codec));
    } else {
        TRY(text_add(out, "1 rank · "));
    }
    if (r->kernels.device == RUN_DEVICE_SHADOW) TRY(text_add(out, "shadow device · "));
    TRY(text_add(out, "%d thread%s · %s · %s     global batch %lld seq × %s = ", s->threads,
                 text_plural(s->threads, "s"), s->level, precisions[r->train.precision],
                 (long long)r->train.global_batch, text_grouped(r->train.seq, seq)));
    TRY(text_add(out, "%s tok/step, %lld at once\n",
                 text_grouped(r->train.global_batch * r->train.seq, tokens),
                 (long long)r->train.micro_batch));
    TRY(text_add(out, "memory   %s planned / %s available%s",
                 text_bytes_human(s->arena_bytes + s->snapshot_bytes + s->copies_bytes, need),
                 s->available_bytes > 0 ? text_bytes_human(s->available_bytes, have) : "unknown",
                 s->ranks > 1 ? " (rank 0; each rank has its share)" : ""));
    if (s->outside_bytes > 0) {
        TRY(text_add(out, ", and %s for context, code and libraries of the GPU",
                     text_bytes_human(s->outside_bytes, need)));
    }
    TRY(recompute_print(r, m, out));
    TRY(copies_print(r, out));
    if (s->gpu_ranks > 1) {
        TRY(text_add(
            out,
            "gpus     %lld ranks share one GPU, its memory and its time; with a GPU for each "
            "rank steps would be faster\n",
            (long long)s->gpu_ranks));
    }
    TRY(ways_print(r, &s->ways, out));
    TRY(text_add(out, "data     %s   tokenizer %s   order seed %lld\n", s->data_about, s->tokenizer,
                 (long long)r->train.seed));
    TRY(text_add(out, "speed    peak %s (mfu is a share of this)\n",
                 flops_human(s->peak_flops, have)));
    return print_target(s, out);
}

// Rank 0 has the run's folder. A second ^C ends this process without a way back to it.
static void quit_prepare(run_log *log)
{
    char *path = NULL;
    if (log->rank != 0) return;
    const status st = path_join(log->lines, log->r->run.dir, "STATUS", &path);
    if (st == ST_OK) cli_signals_on_quit(path, RUN_LOG_QUIT_STATUS);
    keep(log, st);
}

// The first line comes before any work. Where another process has started this rank, that one has
// written it to the terminal before it prepared the data.
static void on_opened(void *context, const char *run_dir)
{
    run_log *log = context;
    text t = {.a = log->lines};
    const status st = run_log_print_head(run_dir, &t);
    keep(log, st);
    const bool on_terminal = !log->quiet && !log->is_json && !log->is_kept;
    if (st == ST_OK) put_lines(log, on_terminal, t.bytes);
    arena_reset(log->lines);
}

static void on_started(void *context, const train_start *start)
{
    run_log *log = context;
    text t = {.a = log->lines};
    log->peak_flops = start->peak_flops;
    log->step = start->first_step - 1;
    log->steps = start->config->train.steps;
    quit_prepare(log);
    const status st = run_log_print_start(start, &t);
    keep(log, st);
    if (st == ST_OK) put_lines(log, !log->quiet && !log->is_json, t.bytes);
    arena_reset(log->lines);
}

static void live_show(run_log *log, const obs_record *record)
{
    const int64_t now = log->cli->h->api->monotonic_ns(log->cli->h);
    if (now - log->live_ns < LIVE_INTERVAL_NS) return;
    log->live_ns = now;
    text t = {.a = log->lines};
    const status st = obs_print_live(record, log->cli->columns, &t);
    keep(log, st);
    if (st != ST_OK) return;
    cli_print(log->cli, "\r%s\033[K", t.bytes);
    log->live_shown = true;
    cli_push(log->cli);
}

// Files get the whole line, a terminal only the part that fits, because a wrapped line is hard to
// read.
static void put_step(run_log *log, const obs_record *record, const char *line)
{
    text narrow = {.a = log->lines};
    if (log->quiet || !log->cli->live || log->is_json) {
        put(log, !log->quiet, line);
        return;
    }
    const status st = obs_print_line(record, log->cli->columns, &narrow);
    keep(log, st);
    live_clear(log);
    if (st == ST_OK) cli_print(log->cli, "%s\n", narrow.bytes);
    cli_push(log->cli);
    files_put(log, line);
}

static void on_step(void *context, const obs_record *given)
{
    run_log *log = context;
    obs_record own = *given;
    const obs_record *record = &own;
    if (own.step == own.steps) own.eta_s = (double)NAN; // the run is over
    const bool first = record->step == log->step + 1 && log->live_ns == 0;
    const bool due = record->step % log->r->log.every == 0 || record->step == record->steps;
    log->step = record->step;
    text t = {.a = log->lines};
    if (due || first || record->skipped) {
        const status st = log->is_json ? obs_print_json(record, &t) : obs_print_line(record, 0, &t);
        keep(log, st);
        if (st == ST_OK) put_step(log, record, t.bytes);
        log->live_ns = 1;
    }
    if (log->cli->live && !log->quiet && !log->is_json) live_show(log, record);
    arena_reset(log->lines);
}

static int step_width(int64_t steps)
{
    int width = 3; // as in obs_print_line: the digits and two blanks
    for (; steps >= 10; steps /= 10) width++;
    return width;
}

static void on_validated(void *context, int64_t step, int64_t steps, double loss, int64_t batches,
                         double seconds, bool best)
{
    run_log *log = context;
    if (log->is_json) {
        say(log, "{\"event\": \"val\", \"step\": %lld, \"val_loss\": %.9g, \"best\": %s}",
            (long long)step, loss, best ? "true" : "false");
        return;
    }
    say(log, "val  %*lld/%lld  loss %.4f  ppl %.4g  %lld batches in %.1f s%s", step_width(steps),
        (long long)step, (long long)steps, loss, exp(loss), (long long)batches, seconds,
        best ? "   best" : "");
}

static void on_saved(void *context, const train_saved *saved)
{
    run_log *log = context;
    char size[32];
    if (log->is_json) {
        say(log,
            "{\"event\": \"checkpoint\", \"step\": %lld, \"bytes\": %lld, \"seconds\": %.3f, "
            "\"stall_s\": %.3f}",
            (long long)saved->step, (long long)saved->bytes, saved->seconds, saved->stall_s);
        return;
    }
    say(log, "ckpt %*lld/%lld  %s in %.1f s (stall %.1f s)  checkpoints/%s",
        step_width(saved->steps), (long long)saved->step, (long long)saved->steps,
        text_bytes_human(saved->bytes, size), saved->seconds, saved->stall_s,
        path_base_name(saved->path));
}

static void on_said(void *context, log_level level, const char *said)
{
    run_log *log = context;
    if (level == LOG_DEBUG) return;
    const bool warns = level == LOG_WARN || level == LOG_ERROR;
    char *lines = NULL;
    if (arena_format(log->cli->a, &lines, "%s %s", warns ? "warning " : "note    ", said) !=
        ST_OK) {
        return;
    }
    if (warns && log->warning_count++ < WARNINGS_KEPT) {
        const status st = arena_strdup(log->cli->a, said, &log->warnings[log->warning_count - 1]);
        keep(log, st);
    }
    put_lines(log, warns || !log->quiet, lines);
}

// The files lie in a folder that was removed. The next line opens them in the new one.
static void on_folder_made(void *context)
{
    run_log *log = context;
    for (int i = 0; i < LOG_FILES; i++) {
        const status closed = log->cli->h->api->file_close(log->files[i]);
        keep(log, closed);
        log->files[i] = NULL;
    }
    log->files_tried = false;
}

static int on_stop_asked(void *context, const char **why)
{
    run_log *log = context;
    if (!cli_signals_asked()) return 0;
    *why = cli_signals_name();
    if (!log->stop_said && !log->is_json) {
        char line[64];
        log->stop_said = true;
        (void)snprintf(line, sizeof(line), "%-8s stopping after this step", cli_signals_name());
        // The signal's handler has already written to a terminal, if it belongs to this process.
        const bool is_told = log->cli->live && log->cli->live_err;
        put(log, !log->quiet && !is_told, line);
    }
    return 1;
}

// ---- the end ------------------------------------------------------------------------------------

// A command that trains on after the last step. A schedule that decays over the run has ended near
// zero, and more steps would stretch it and raise the rate again, so the command keeps a rate.
static void end_continue(run_log *log, const train_outcome *o, const char *dir)
{
    const run_config *r = log->r;
    const int32_t name = r->schedule.name;
    const bool decays =
        name == RUN_SCHEDULE_LINEAR || name == RUN_SCHEDULE_COSINE || name == RUN_SCHEDULE_WSD;
    const long long more = (long long)(2 * o->steps);
    if (!decays || r->schedule.min_ratio >= 1.0) {
        say(log, "         trireme train %s train.steps=%lld", dir, more);
        return;
    }
    const double end = o->lr_next, small = 1e-3 * r->optimizer.lr;
    const double rate = end > small ? end : 0.1 * r->optimizer.lr;
    say(log, "         trireme train %s train.steps=%lld optimizer.lr=%.3g schedule.min_ratio=1",
        dir, more, rate);
    say(log, "         (the learning rate has decayed to %.2g; this trains on at a constant %.3g)",
        end, rate);
}

// Commands that go on from the run, as a shell takes them.
static void end_commands(run_log *log, const train_outcome *o)
{
    const char *dir = NULL, *to = NULL;
    char *folder = NULL;
    if (text_quote(log->cli->a, log->r->run.dir, &dir) != ST_OK ||
        arena_format(log->cli->a, &folder, "%s-hf", log->r->run.dir) != ST_OK ||
        text_quote(log->cli->a, folder, &to) != ST_OK) {
        error_clear(); // the run itself is whole
        return;
    }
    say(log, "next     trireme generate %s --prompt \"...\"", dir);
    end_continue(log, o, dir);
    say(log, "         trireme export %s %s", dir, to);
}

// A run that had its last step before: it says so, and has no loss or time of its own.
static void end_nothing(run_log *log, const train_outcome *o)
{
    char steps[40];
    const int64_t asked = log->steps;
    say(log, "done     this run has all its %s steps; nothing was trained (train.steps = %lld)",
        text_grouped(o->steps, steps), (long long)asked);
}

static void end_totals(run_log *log, const train_outcome *o)
{
    char steps[40], tokens[32], wall[32], busy[32], speed[32], peak[32];
    if (o->trained <= 0) {
        end_nothing(log, o);
    } else {
        say(log, "done     %s step%s  %s tokens  %s wall, %s in steps  loss %.4f",
            text_grouped(o->steps, steps), text_plural(o->steps, "s"),
            text_count_human((double)o->tokens, tokens), text_duration_human(o->wall_s, wall),
            text_duration_human(o->busy_s, busy), o->loss);
    }
    if (!isnan(o->val_loss)) {
        say(log, "         val %.4f, best %.4f", o->val_loss, o->best_val_loss);
    }
    if (o->start_s > 0.0) say(log, "         first action %.2f s after the start", o->start_s);
    if (o->tokens_per_s > 0.0) {
        say(log, "         %s tok/s, mfu %.1f%% of %s", text_count_human(o->tokens_per_s, speed),
            100.0 * o->mfu, flops_human(log->peak_flops, peak));
    }
    if (o->skipped > 0)
        say(log, "         %s step%s skipped", text_grouped(o->skipped, steps),
            text_plural(o->skipped, "s"));
    if (o->checkpoint != NULL) say(log, "         %s", o->checkpoint);
    if (o->best_checkpoint != NULL &&
        (o->checkpoint == NULL || strcmp(o->best_checkpoint, o->checkpoint) != 0)) {
        say(log, "         %s (best)", o->best_checkpoint);
    }
    end_commands(log, o);
}

static void end_warnings(run_log *log)
{
    if (log->first_error != ST_OK) {
        cli_print(log->cli, "warning  the log is incomplete: %s\n", log->error.text);
    }
    if (log->warning_count < 2) return; // a single warning has just been printed
    say(log, "%lld warnings:", (long long)log->warning_count);
    for (int64_t i = 0; i < min_i64(log->warning_count, WARNINGS_KEPT); i++) {
        say(log, "  %s", log->warnings[i]);
    }
}

// The last line of a log that ended early is for programs.
static status end_json(run_log *log, status st, const error_record *error)
{
    text t = {.a = log->lines};
    TRY(text_add(&t, "{\"cause\": "));
    TRY(text_add_json(&t, error->text));
    TRY(text_add(&t, ", \"code\": \"%s\", \"step\": %lld, \"exit\": %d}", status_code(st),
                 (long long)log->step, status_exit_code(st)));
    put(log, log->is_json, t.bytes);
    return ST_OK;
}

// True if this process may write into the folder: it exists, and no other process uses it.
static bool may_write(const run_log *log, status st)
{
    if (log->files_tried) return true;
    return st != ST_LOCKED && folder_is_there(log);
}

void run_log_end(run_log *log, status st, const train_outcome *outcome)
{
    error_record error;
    error_take(&error);
    live_clear(log);
    if (st == ST_OK && !log->is_json) end_totals(log, outcome);
    if (st == ST_OK && log->is_json && outcome->trained <= 0) {
        say(log, "{\"event\": \"done\", \"step\": %lld, \"trained\": 0}",
            (long long)outcome->steps);
    }
    end_warnings(log);
    if (st != ST_OK && may_write(log, st)) {
        const status told = end_json(log, st, &error);
        keep(log, told);
    }
    for (int i = 0; i < LOG_FILES; i++) {
        const status closed = log->cli->h->api->file_close(log->files[i]);
        keep(log, closed);
    }
    arena_destroy(log->lines);
    (void)error_put(&error);
}

// ---- creation -----------------------------------------------------------------------------------

status run_log_create(cli_context *cli, const run_config *r, bool quiet, int rank, bool is_kept,
                      run_log **out)
{
    run_log *log = NULL;
    TRY(arena_new(cli->a, 1, &log));
    log->cli = cli;
    log->r = r;
    log->quiet = quiet;
    log->rank = rank;
    log->is_kept = is_kept;
    log->early.a = cli->a;
    log->is_json = r->log.format == RUN_LOG_JSON;
    TRY(arena_create("log line", 0, &log->lines));
    *out = log;
    return ST_OK;
}

void run_log_name(run_log *log, const char *name)
{
    log->name = name;
}

train_watcher run_log_watcher(run_log *log)
{
    return (train_watcher){
        .context = log,
        .opened = on_opened,
        .started = on_started,
        .step = on_step,
        .validated = on_validated,
        .saved = on_saved,
        .said = on_said,
        .folder_made = on_folder_made,
        .stop_asked = on_stop_asked,
    };
}
