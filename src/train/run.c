// A run: opens the folder, builds the job, continues from the last checkpoint, closes everything.
#include "assemble/prove.h"
#include "config/run_length.h"
#include "data/tokenizer.h"
#include "device/gpus.h"
#include "train/buddy.h"
#include "train/excluded.h"
#include "train/lr/lr.h"
#include "train/session_health.h"
#include "train/times.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t session_now(const session *s)
{
    return s->h->api->monotonic_ns(s->h);
}

void session_spend(session *s, obs_cause cause)
{
    const int64_t now = session_now(s);
    s->goodput.lost_s[cause] += (double)max_i64(now - s->last_result_ns, 0) / 1e9;
    s->last_result_ns = now;
}

void session_say(const session *s, log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (s->w->said != NULL) s->w->said(s->w->context, level, line);
}

void session_progress(session *s, const char *doing, bool usual)
{
    s->progress++;
    if (s->w->progress == NULL) return;
    const bool known = usual && s->steps_timed > 2;
    const train_progress p = {.step = s->step,
                              .counter = s->progress,
                              .step_ns = known ? (int64_t)(s->mean_step_s * 1e9) : 0,
                              .doing = doing};
    s->w->progress(s->w->progress_context, &p);
}

static const char change_reason[] = "change of ranks";

bool session_should_stop(session *s)
{
    const char *why = NULL;
    const int asked = s->w->stop_asked != NULL ? s->w->stop_asked(s->w->context, &why) : 0;
    if (asked > s->stop) {
        s->stop = asked;
        s->stop_reason = why != NULL ? why : "asked to stop";
    }
    const bool has_change = s->stop == 0 && s->w->change_asked != NULL;
    if (has_change && s->w->change_asked(s->w->progress_context)) {
        s->stop = 1;
        s->stop_reason = change_reason;
    }
    const int64_t limit = s->r->train.max_time;
    if (limit > 0 && s->stop == 0 && session_now(s) - s->begin_ns >= limit) {
        s->stop = 1;
        s->stop_reason = "train.max_time is over";
    }
    return s->stop > 0;
}

// The reason of a stop is sent along with the stop itself: a signal to all ranks reaches some of
// them later.
status session_stop_agree(session *s)
{
    static const char *const reasons[] = {"asked to stop", change_reason, "train.max_time is over",
                                          "SIGUSR1",       "SIGTERM",     "SIGINT",
                                          "SIGUSR2",       "SIGXCPU",     "SIGHUP",
                                          "SIGQUIT"};
    enum { REASONS = COUNT_OF(reasons) };
    int agreed = 0;
    if (session_should_stop(s)) {
        for (int i = 0; i < REASONS; i++) {
            const bool is_mine = strcmp(reasons[i], s->stop_reason) == 0;
            if (i == 0 || is_mine) agreed = s->stop * REASONS + i;
        }
    }
    TRY(session_words_swap(s, &agreed));
    s->stop = agreed / REASONS;
    if (s->stop > 0) s->stop_reason = reasons[agreed % REASONS];
    s->is_changing = s->stop > 0 && s->stop_reason == change_reason;
    return ST_OK;
}

// Called while text becomes tokens, which may take long; there is no state to save yet.
static status data_heard(void *context, log_level level, const char *line)
{
    session *s = context;
    session_progress(s, "preparing data", false);
    if (line != NULL && session_is_first(s)) session_say(s, level, "%s", line);
    if (!session_should_stop(s)) return ST_OK;
    return fail(ST_STOPPED,
                "%s before step %lld, while converting text to tokens; the same command continues",
                s->stop_reason, (long long)s->step + 1);
}

// ---- putting it together ------------------------------------------------------------------------

static status model_of_run(session *s, run_config *r)
{
    TRY(train_loader_open(s->h, s->a, r, &s->loader));
    return train_loader_model(s->loader, r, &s->spec);
}

assemble_options session_options(const run_config *r, const plan_mesh *mesh)
{
    return (assemble_options){
        .threads = assemble_threads(r),
        .device = run_config_device(r),
        .backend = run_config_backend(r),
        .documents = r->data.packing != RUN_PACKING_PLAIN,
        .evaluate = (r->eval.every > 0 && run_config_has_valid(r)) || run_config_has_reference(r),
        .rollouts = run_config_has_rollouts(r),
        .snapshots = plan_mesh_rank(mesh) == 0 ? assemble_snapshots(r) : 0,
        .mesh = *mesh,
    };
}

// Spares reserve memory as the ranks do. Memory that the process kept is not free, but it is there.
static int64_t memory_limit(const session *s)
{
    const comm *all = s->ranks.all;
    const int64_t ranks = all != NULL ? comm_ranks(all) : 1;
    const int64_t local = all != NULL ? comm_local_ranks(all) : 1;
    const int64_t spares = (s->r->resilience.spares * local + ranks - 1) / ranks;
    // Spares take GPUs in turn, too: without any, the ranks that have the same GPU are known.
    const int64_t known = s->gpu_ranks * device_cuda_count();
    const int64_t sharing = spares == 0 && known > 0 ? known : local + spares;
    const int64_t free = assemble_memory_limit(s->h, s->r, sharing);
    const bool is_given = s->r->memory.limit > 0;
    return is_given ? free : free + session_process_bytes(s);
}

static status trace_of_run(session *s)
{
    if (s->r->trace.steps.begin <= 0) return ST_OK;
    TRY(trace_create(s->h, 1 << 16, &s->ring));
    return obs_trace_create(s->a, &s->trace);
}

// Rank 0 writes trace.json; each other rank writes its trace next to its log, if it has one.
static status trace_write(session *s)
{
    char *path = NULL, *logs = NULL;
    file_info info;
    if (s->trace == NULL) return ST_OK;
    if (session_is_first(s)) {
        TRY(path_join(s->a, s->folder.path, "trace.json", &path));
        return obs_trace_write(s->trace, s->h, path);
    }
    TRY(path_join(s->a, s->folder.path, "logs", &logs));
    TRY(s->h->api->path_info(s->h, logs, &info));
    if (info.kind != FILE_KIND_FOLDER)
        return ST_OK; // on several hosts, the log may lie on another host
    TRY(arena_format(s->a, &path, "%s/trace-%05d.json", logs, comm_rank(s->ranks.all)));
    return obs_trace_write(s->trace, s->h, path);
}

// Agrees on the tightest memory settings that any rank needs: pipeline stages differ in size.
static status memory_agree(session *s, run_config *r)
{
    TRY(assemble_memory_choose(r, &s->spec, &s->options));
    int least = -(int)r->train.micro_batch, recompute = (int)r->train.recompute;
    TRY(session_agree(s, &least, "micro-batch"));
    TRY(session_agree(s, &recompute, "recompute"));
    r->train.micro_batch = -least;
    r->train.recompute = recompute;
    return ST_OK;
}

// The first rank makes the plans of all ranks and verifies them together; all ranks get the result.
static status plans_verify(session *s)
{
    const bool is_first = session_is_first(s);
    status st = ST_OK;
    if (is_first) {
        assemble_proved proved;
        st = session_process_prove(s, &proved);
        if (st == ST_OK && proved.dp > 0) {
            session_say(s, LOG_INFO, "verified the plans of dp %lld in place of those of dp %lld",
                        (long long)proved.dp, (long long)s->r->layout.dp);
        }
    }
    if (s->ranks.hosts == NULL) return st;
    error_record why;
    error_take(&why);
    int worst = (int)st;
    TRY(session_agree(s, &worst, "verdict of the verifier"));
    if (worst == ST_OK) return ST_OK;
    TRY(comm_pass(s->ranks.hosts, COLLECTIVE_BROADCAST, 0, why.text, sizeof(why.text),
                  "reason of the refusal", __func__));
    if (is_first) return error_put(&why);
    return fail((status)worst, "%.4000s", why.text);
}

static status plans_of_run(session *s, run_config *r)
{
    const plan_mesh mesh = session_mesh(s);
    s->options = session_options(r, &mesh);
    TRY(session_buddy_domain(s, &s->options.domain));
    TRY(train_outside_bytes(s->h, s->a, r, &s->options.outside_bytes));
    TRY(assemble_layout_check(r, &s->spec));
    TRY(memory_agree(s, r));
    return session_process_plan(s);
}

status session_job(session *s)
{
    TRY(assemble_fit_check(s->r, &s->spec, &s->options, &s->plans, memory_limit(s)));
    TRY(plans_verify(s));
    TRY(trace_of_run(s));
    session_process_put(s);
    TRY(train_job_create(s->h, s->a, &s->plans, &s->options, &s->ranks, s->ring, &s->job));
    char *numerics = NULL;
    TRY(train_job_numerics(&s->job, &s->options, s->a, &numerics));
    s->numerics = numerics;
    s->flops_per_token = op_model_flops_per_token(s->plans.whole, s->r->train.seq);
    const int local = s->ranks.all != NULL ? comm_local_ranks(s->ranks.all) : 1;
    s->facts = (train_facts){
        .threads = s->options.threads, .ranks = local, .cores = kern_cores_shared(local)};
    s->peak_flops = session_process_peak(s) *
                    assemble_cores_share(s->facts.threads, local, s->facts.cores) *
                    (double)run_config_ranks(s->r);
    return ST_OK;
}

// Whether a GPU multiplies operands of 8 bits in bf16.
static bool rounds_fp8(const session *s)
{
    const device_facts f = exec_facts(s->job.e);
    const bool has_units = s->r->precision.fp8 == RUN_FP8_TENSOR ? f.fp8_tensors : f.fp8_blocks;
    return s->r->kernels.device == RUN_DEVICE_CUDA && !has_units;
}

static const plan *largest_plan(const assemble_plans *plans)
{
    const plan *largest = plans->all[0];
    for (int64_t i = 1; i < plans->count; i++) {
        if (plans->all[i]->transient_bytes > largest->transient_bytes) largest = plans->all[i];
    }
    return largest;
}

// Warns once of settings that are rarely meant.
static status settings_advise(session *s)
{
    text lines = {.a = s->a};
    s->facts.tokens = train_loader_tokens(s->loader);
    s->facts.rounds_fp8 = rounds_fp8(s);
    if (!session_is_first(s)) return ST_OK;
    TRY(train_advice(s->r, &s->facts, &lines));
    for (char *line = lines.bytes; line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        session_say(s, LOG_WARN, "%s", line);
        line = end + 1;
    }
    return ST_OK;
}

// An adapter that came from a folder keeps the words of that folder.
static status adapter_describe(session *s)
{
    const model_adapter *adapter = &s->spec.adapter;
    char *path = NULL, *bytes = NULL;
    int64_t count = 0;
    s->adapter_json.a = s->base_json.a = s->a;
    if (adapter->rank == 0) return ST_OK;
    TRY(assemble_base_print(&s->base, &s->base_json));
    if (adapter->folder == NULL) {
        return model_adapter_print(s->a, &s->spec, s->plans.whole, s->r->model.from,
                                   &s->adapter_json);
    }
    TRY(path_join(s->a, adapter->folder, "adapter_config.json", &path));
    TRY(host_read_all(s->h, s->a, path, 1 << 20, &bytes, &count));
    return text_add_bytes(&s->adapter_json, bytes, count);
}

// After a loss the folder has these files, and a disk that is full now ends no run.
static status folder_describe(session *s, const config *c, const char *config_text)
{
    const train_restart *o = s->memory.order;
    const status st = train_folder_describe(&s->folder, &s->start, c, config_text);
    if (st == ST_OK || o == NULL || o->epoch == 0) return st;
    session_say(s, LOG_WARN, "%.800s; the run goes on with the file of before", error_last()->text);
    error_clear();
    return ST_OK;
}

static status started(session *s, const config *c, const char *config_text)
{
    char *about = NULL;
    const comm *all = s->ranks.all;
    TRY(train_loader_about(s->loader, s->a, s->r, &about));
    char *level = NULL; // outlives the device
    TRY(arena_format(s->a, &level, "%s", exec_facts(s->job.e).level));
    s->start =
        (train_start){.config = s->r,
                      .spec = &s->spec,
                      .run_dir = s->folder.path,
                      .data_about = about,
                      .tokenizer = train_loader_tokenizer(s->loader),
                      .resumed = s->step > 0,
                      .first_step = s->step + 1,
                      .parameters = s->plans.whole->parameters,
                      .arena_bytes = s->plans.arena_bytes,
                      .snapshot_bytes = assemble_snapshot_bytes(&s->plans),
                      .copies_bytes = assemble_copies_bytes(&s->plans),
                      .available_bytes = memory_limit(s),
                      .largest = largest_plan(&s->plans),
                      .compressed = assemble_plan_of(&s->plans, s->r->train.global_batch, true),
                      .codec_bound = s->plans.codec_bound,
                      .whole_from = s->whole_from,
                      .threads = s->options.threads,
                      .ranks = (int)run_config_ranks(s->r),
                      .transport = all != NULL ? comm_transport_name(all) : NULL,
                      .tuning = all != NULL ? comm_tuning(all) : NULL,
                      .level = level,
                      .outside_bytes = s->options.outside_bytes,
                      .gpu_ranks = s->gpu_ranks_most,
                      .ways = exec_ways_of(s->job.e, largest_plan(&s->plans)),
                      .flops_per_token = s->flops_per_token,
                      .peak_flops = s->peak_flops};
    TRY(folder_describe(s, c, config_text));
    s->config_json.a = s->config_yaml.a = s->a;
    TRY(model_spec_print_json(&s->spec, &s->config_json));
    TRY(config_print_resolved(c, s->r, &s->config_yaml));
    TRY(adapter_describe(s));
    (void)hash128_text(hash128_of(s->config_yaml.bytes, s->config_yaml.length), s->config_sum);
    if (session_goes_on(s)) return ST_OK;
    if (s->w->started != NULL) s->w->started(s->w->context, &s->start);
    return settings_advise(s);
}

// ---- the run ------------------------------------------------------------------------------------

static int64_t next_multiple(int64_t after, int64_t every, int64_t last)
{
    return every > 0 ? min_i64((after / every + 1) * every, last) : last;
}

static int64_t last_of(const session *s)
{
    const int64_t all = s->r->train.steps;
    return s->last_step > 0 ? min_i64(s->last_step, all) : all;
}

status session_go(session *s, int64_t limit, bool *done)
{
    const int64_t steps = last_of(s);
    const int64_t record_every = session_record_every(s);
    while (s->step < min_i64(limit, steps) && s->stop == 0 && !s->move.is_due) {
        int64_t until = min_i64(session_save_next(s), min_i64(limit, steps));
        if (session_memory_is_kept(s)) {
            until = min_i64(until, next_multiple(s->step, s->r->resilience.buddy.every, steps));
        }
        if (session_evaluates(s)) {
            until = min_i64(until, next_multiple(s->step, s->r->eval.every, steps));
        }
        if (s->buddy.sharder != NULL && !session_buddy_overlaps(s)) {
            until = min_i64(until, next_multiple(s->step, s->r->resilience.buddy.ranks, steps));
        }
        if (s->r->sdc.digests > 0) {
            until = min_i64(until, next_multiple(s->step, s->r->sdc.digests, steps));
        }
        until = min_i64(until, next_multiple(s->step, record_every, steps));
        until = min_i64(until, session_tasks_next(s));
        until = min_i64(until, session_replay_next(s));
        until = min_i64(until, next_multiple(s->step, s->r->moe.rebalance, steps));
        const int64_t next_save = session_save_next(s);
        TRY(session_replay_before(s));
        TRY(session_steps(s, until));
        TRY(session_replay_after(s));
        if (s->r->sdc.digests > 0 && s->step % s->r->sdc.digests == 0) {
            TRY(session_replicas_check(s, false));
            session_spend(s, OBS_DIGESTS);
        }
        TRY(session_record(s));
        session_buddy_rest(s);
        TRY(session_rebalance(s));
        session_spend(s, OBS_OTHER);
        const int64_t begin = session_now(s);
        TRY(session_buddy_save(s, false));
        TRY(session_memory_save(s));
        session_spend(s, OBS_COPIES);
        const bool due = s->step == next_save;
        if (due && s->stop < 2) {
            TRY(session_save_begin(s, false));
            TRY(session_interval_choose(s));
            session_spend(s, OBS_SAVES);
        }
        s->times.disk_ns += session_now(s) - begin;
        TRY(session_scrub_poll(s));
        if (s->stop == 0) TRY(session_tasks_run(s));
    }
    if (s->step >= steps || s->stop != 0) s->move.is_due = false;
    *done = s->step >= steps || s->stop != 0;
    return ST_OK;
}

// After the last step, or after the step where the run stopped.
static status last_save(session *s)
{
    if (s->stop >= 2) return ST_OK;
    if (s->is_changing && s->step < last_of(s)) return session_memory_last(s);
    TRY(session_graphs_tell(s));
    TRY(session_outside_tell(s));
    TRY(session_checks_last(s));
    session_replay_tell(s);
    TRY(session_save_last(s));
    return trace_write(s);
}

// Returns 0 if no step was begun.
static double start_seconds(const session *s)
{
    const int64_t first = exec_first_action_ns(s->job.e);
    return first > 0 ? (double)(first - s->begin_ns) / 1e9 : 0.0;
}

static const char *path_or_null(const char *path)
{
    return path != NULL && path[0] != '\0' ? path : NULL;
}

static void outcome_of(const session *s, train_outcome *out)
{
    const double busy = (double)s->busy_ns / 1e9;
    *out = (train_outcome){.steps = s->step,
                           .tokens = s->tokens,
                           .skipped = s->skipped,
                           .trained = s->step - (s->start.first_step - 1),
                           .wall_s = (double)(session_now(s) - s->begin_ns) / 1e9,
                           .busy_s = busy,
                           .start_s = start_seconds(s),
                           .loss = s->loss,
                           .val_loss = s->val_loss,
                           .best_val_loss = s->best_val_loss,
                           .lr_next = lr_rate(s->r, min_i64(s->step, s->r->train.steps)),
                           .tokens_per_s = busy > 0.0 ? (double)s->session_tokens / busy : 0.0,
                           .checkpoint = path_or_null(s->newest_path),
                           .best_checkpoint = path_or_null(s->best_path),
                           .stopped = s->stop > 0 && s->step < s->r->train.steps,
                           .wrong = -1};
    out->changes = out->stopped && s->is_changing;
    out->mfu =
        s->peak_flops > 0.0 ? out->tokens_per_s * s->flops_per_token / s->peak_flops : (double)NAN;
}

// The position in the data is a number of sequences, which has no meaning in other data.
static status data_compare(session *s)
{
    const hash128 id = train_loader_id(s->loader);
    (void)hash128_text(id, s->data_sum);
    (void)hash128_text(data_tokenizer_id(train_loader_decoder(s->loader)), s->tokenizer_sum);
    int most = (int)(id.low & 0x7fffffff), least = -most; // maximum, negated minimum
    TRY(session_agree(s, &most, "data"));
    TRY(session_agree(s, &least, "data"));
    if (most != -least) {
        return fail(ST_REFUSED, "the ranks do not have the same data: %s here", s->data_sum);
    }
    if (s->data_before == NULL || strcmp(s->data_before, s->data_sum) == 0) return ST_OK;
    return fail(
        ST_CONFIG_FIXED,
        "the data differs from that of %s: other files, sizes, tokens or tokenizer "
        "(%s, then %s)\n  restore the files that data.train named; or export %s, and train that "
        "folder in a new run with model.from",
        path_base_name(s->newest_path), s->data_sum, s->data_before, s->newest_path);
}

// Ignores a status during clean-up, which keeps the first error.
static void drop(status st)
{
    (void)st;
}

status session_records_open(session *s)
{
    char *metrics_path = NULL, *events_path = NULL;
    obs_metrics *metrics = NULL;
    obs_events *events = NULL;
    TRY(path_join(s->a, s->folder.path, "metrics.jsonl", &metrics_path));
    TRY(train_folder_events(&s->folder, &events_path));
    const obs_metrics_config of_metrics = {
        .path = metrics_path, .finished_steps = s->step, .limit_bytes = s->r->log.metrics_limit};
    TRY(obs_metrics_open(s->h, s->a, &of_metrics, &metrics));
    const status st = obs_events_open(s->h, s->a, events_path, s->step, &events);
    if (st != ST_OK) {
        error_record kept;
        error_take(&kept);
        drop(obs_metrics_close(metrics));
        return error_put(&kept);
    }
    double time = 0.0;
    const bool has_before = obs_metrics_before(metrics, &s->goodput, &time);
    if (s->metrics == NULL) session_memory_count(s, has_before ? time : 0.0);
    drop(obs_metrics_close(s->metrics));
    drop(obs_events_close(s->events));
    s->metrics = metrics;
    s->events = events;
    return ST_OK;
}

// The first rank makes the shards, and the others read them.
static status data_of_run(session *s)
{
    if (s->has_data) return ST_OK;
    if (!session_is_first(s)) TRY(session_barrier(s, "data"));
    TRY(train_loader_prepare(s->loader, s->folder.cache, data_heard, s));
    if (session_is_first(s)) TRY(session_barrier(s, "data"));
    s->has_data = true;
    return ST_OK;
}

// A length in epochs needs the data before anything that depends on the number of steps.
static status length_of_run(session *s, run_config *r, const config *c)
{
    if (r->train.epochs <= 0) return ST_OK;
    TRY(data_of_run(s));
    return run_length_of_epochs(r, c, s->a, train_loader_sequences(s->loader));
}

status session_plan(session *s, const train_order *order)
{
    text changed = {.a = s->a};
    run_config *was = NULL, *r = &s->own;
    s->given = order->c;
    s->config_text = order->config_text;
    TRY(model_of_run(s, r)); // fills in the vocabulary, which is compared too
    TRY(length_of_run(s, r, order->c));
    if (strcmp(order->resume, "none") != 0) {
        TRY(train_folder_before(&s->folder, &was));
        // A run keeps its way of counting, also one that was begun before the key existed.
        if (was != NULL && !config_is_given(order->c, "schedule.warmup_from")) {
            r->schedule.warmup_from = was->schedule.warmup_from;
        }
        if (was != NULL) TRY(run_config_compare(s->a, was, r, order->c, &changed));
        s->codec_changed = changed.length > 0 && strstr(changed.bytes, "comm.compression.") != NULL;
        if (changed.length > 0) session_say(s, LOG_INFO, "changed since: %s", changed.bytes);
    }
    return plans_of_run(s, r);
}

status session_start(session *s, const train_order *order)
{
    TRY(session_checks_open(s)); // before anything computes
    if (run_config_objective(s->r).kind != OBJECTIVE_NONE) {
        TRY(data_of_run(s));
        train_loader_mesh(s->loader, &s->options.mesh);
        TRY(session_objective_open(s));
        TRY(session_rollouts_open(s));
    }
    TRY(session_rebalance_open(s));
    TRY(session_process_ready(s));
    TRY(session_state(s, order->resume));
    TRY(session_barrier(s, "state")); // after this, the first rank writes in the folder
    TRY(session_saver_open(s));
    TRY(session_memory_open(s));
    TRY(session_loads_open(s));
    TRY(session_replicas_open(s));
    TRY(session_times_open(s));
    TRY(session_health_open(s));
    TRY(session_durable_open(s));
    TRY(session_scrub_open(s));
    TRY(session_tasks_open(s));
    TRY(data_of_run(s));
    TRY(data_compare(s));
    if (session_evaluates(s) && !train_loader_has_valid(s->loader)) {
        return fail(ST_DATA, "there is no validation data: data.valid is smaller than a sequence");
    }
    TRY(train_loader_start(s->loader, &s->options.mesh, s->step + 1, s->sequences));
    TRY(session_replay_open(s));
    TRY(session_buddy_open(s)); // steps that are replayed have other probes
    TRY(started(s, order->c, order->config_text));
    TRY(session_arena_tell(s));
    TRY(train_folder_status(&s->folder, "running", -1, NULL));
    if (session_is_first(s)) {
        TRY(session_records_open(s));
        TRY(train_excluded_record(s->h, s->a, s->folder.path, s->r, s->step + 1));
        if (!session_goes_on(s)) TRY(session_memory_tell(s));
    }
    s->last_result_ns = session_now(s);
    TRY(session_tasks_run(s));   // an earlier session may have ended before
    return session_rebalance(s); // where a checkpoint was made before experts moved
}

status session_finish(session *s, train_outcome *out)
{
    TRY(last_save(s));
    outcome_of(s, out);
    if (!out->stopped) return ST_OK;
    if (out->changes) return fail(ST_STOPPED, "step %lld: the ranks change", (long long)s->step);
    if (s->saved_step != s->step || !session_is_first(s)) {
        return fail(ST_STOPPED, "%s in step %lld", s->stop_reason, (long long)s->step);
    }
    return fail(ST_STOPPED, "%s in step %lld; %s is durable", s->stop_reason, (long long)s->step,
                path_base_name(s->newest_path));
}

static void parts_close(session *s)
{
    error_record kept;
    error_take(&kept);
    drop(session_save_poll(s, true)); // waits for a save that has begun
    ckpt_saver_destroy(s->saver);
    session_durable_close(s);
    session_scrub_close(s);
    session_tasks_close(s);
    session_memory_close(s);
    session_health_close(s);
    drop(obs_metrics_close(s->metrics));
    drop(obs_events_close(s->events));
    session_rollouts_close(s);
    train_loader_close(s->loader);
    session_buddy_close(s);
    train_job_destroy(&s->job);
    session_ranks_close(s);
    trace_destroy(s->ring);
    drop(error_put(&kept));
}

// Adds the checkpoint to return to, for a person who has to look.
static status numerics_advise(const session *s, status st)
{
    const char *path = path_or_null(s->newest_path);
    if (st != ST_NUMERICS || path == NULL) return st;
    error_record kept;
    error_take(&kept);
    return fail(st, "%.3000s; last good checkpoint: %s", kept.text, path_base_name(path));
}

static void status_write(session *s, status st)
{
    error_record kept;
    error_take(&kept);
    const int code = status_exit_code(st);
    if (st == ST_OK) {
        drop(train_folder_status(&s->folder, "done", code, NULL));
    } else {
        char *end = kept.text + strcspn(kept.text, ";"); // STATUS ends here
        const char was = *end;
        if (st == ST_STOPPED) *end = '\0';
        drop(train_folder_status(&s->folder, st == ST_STOPPED ? "stopped" : "failed", code,
                                 kept.text));
        *end = was;
    }
    drop(error_put(&kept));
}

status session_open(const host *h, arena *a, const train_order *order, session **out)
{
    session *s = NULL;
    TRY(arena_new(a, 1, &s));
    TRY(arena_new(a, 1, &s->results));
    s->h = h;
    s->a = a;
    s->own = *order->r; // the vocabulary may be filled in
    s->r = &s->own;
    s->c = order->c;
    s->w = order->watcher;
    s->memory.order = order->restart;
    s->wrong = -1;
    s->last_step = order->last_step;
    s->begin_ns = h->api->monotonic_ns(h);
    const bool first = order->ranks == NULL || comm_rank(order->ranks) == 0;
    TRY(first ? train_folder_open(h, a, s->own.run.dir, &s->folder)
              : train_folder_join(h, a, s->own.run.dir, &s->folder));
    if (s->w->opened != NULL) s->w->opened(s->w->context, s->folder.path);
    *out = s;
    return ST_OK;
}

status session_close(session *s, status st, train_outcome *out)
{
    st = session_buddy_error(s, st);
    if (s->plans.kernels != NULL && st == ST_CORRUPT &&
        kern_checks_has_failed(kern_context_checks(s->plans.kernels))) {
        s->wrong = s->ranks.all != NULL ? comm_rank(s->ranks.all) : 0;
    }
    parts_close(s);
    if (st == ST_CORRUPT || s->wrong >= 0) session_process_forget(s);
    out->wrong = s->wrong;
    out->leaves = s->leaves;
    out->steps = max_i64(out->steps, s->step);
    st = numerics_advise(s, st);
    if (!out->changes) status_write(s, st);
    train_folder_close(&s->folder);
    return st;
}

static status run_in_folder(session *s, const train_order *order, train_outcome *out)
{
    bool done = false;
    TRY(session_plan(s, order));
    TRY(session_job(s));
    TRY(session_start(s, order));
    do {
        TRY(session_go(s, INT64_MAX, &done));
        if (!done) TRY(session_shares_plan(s));
        if (!done && s->move.is_due) {
            return s->move.is_evict ? session_shares_evict(s) : session_shares_keep(s);
        }
    } while (!done);
    return session_finish(s, out);
}

static status run_once(const host *h, arena *a, const train_order *order, struct session_kept *kept,
                       train_outcome *out, bool *goes_on)
{
    session *s = NULL;
    *out = (train_outcome){.wrong = -1};
    *goes_on = false;
    TRY(session_open(h, a, order, &s));
    session_shares_use(s, kept);
    status st = session_ranks_open(s, order->ranks);
    if (st == ST_OK) st = session_gpu_find(s);
    if (st == ST_OK) st = run_in_folder(s, order, out);
    *goes_on = st == ST_OK && s->move.is_due;
    if (!*goes_on) return session_close(s, st, out);
    parts_close(s);
    train_folder_close(&s->folder);
    return ST_OK;
}

status train_run(const host *h, arena *a, const train_order *order, train_outcome *out)
{
    struct session_kept *kept = NULL;
    bool goes_on = true;
    status st = ST_OK;
    TRY(session_kept_create(a, &kept));
    while (goes_on && st == ST_OK) st = run_once(h, a, order, kept, out, &goes_on);
    session_kept_destroy(kept);
    return st;
}

status train_prepare(const host *h, arena *a, const run_config *r)
{
    train_loader *loader = NULL;
    char *cache = NULL;
    run_config own = *r; // the vocabulary may be filled in
    decoder_spec spec;
    TRY(path_join(a, r->run.dir, "cache", &cache));
    TRY(train_loader_open(h, a, r, &loader));
    status st = train_loader_model(loader, &own, &spec);
    if (st == ST_OK) st = assemble_layout_check(&own, &spec);
    if (st == ST_OK) st = assemble_train_check(&own, &spec);
    if (st == ST_OK) st = h->api->path_mkdir(h, cache);
    if (st == ST_OK) st = train_loader_prepare(loader, cache, NULL, NULL);
    train_loader_close(loader);
    return st;
}
