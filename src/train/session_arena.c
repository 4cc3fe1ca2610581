// Says where this rank's arena lies and what its bytes hold, for `chaos`, which flips bits there:
// the ranks of a pipeline, or with uneven shares, have different plans. `chaos` makes the folder
// RUN/logs/arenas before the run, and without it nothing is written. Address 0: a device hides it.
#include "train/session.h"

static status tensor_print(const plan *p, int32_t ref, text *out)
{
    const plan_tensor *t = plan_tensor_at(p, ref);
    return text_add(out,
                    ",\n {\"kind\": \"%s\", \"lifetime\": \"%s\", \"offset\": %lld, "
                    "\"bytes\": %lld}",
                    plan_bytes_name(t->kind), t->is_run ? "run" : "actions",
                    (long long)plan_tensor_offset(p, ref), (long long)t->bytes);
}

static status arena_print(const session *s, const void *at, text *out)
{
    const plan *p = assemble_plan_of(&s->plans, run_config_batch(s->r, s->step),
                                     session_compresses(s, s->step + 1));
    TRY(text_add(out, "{\"process\": %lld, \"address\": %llu, \"bytes\": %lld, \"tensors\": [\n {}",
                 (long long)s->h->api->process_id(s->h), (unsigned long long)(uintptr_t)at,
                 (long long)exec_arena_bytes(s->job.e)));
    for (int64_t i = 0; i < p->run->count; i++) TRY(tensor_print(p, plan_run_ref(i), out));
    for (int64_t i = 0; i < p->tensor_count; i++) TRY(tensor_print(p, (int32_t)i, out));
    return text_add(out, "]}\n");
}

status session_arena_tell(session *s)
{
    char *folder = NULL, *path = NULL;
    file_info info;
    const void *at = exec_arena(s->job.e);
    const int rank = s->ranks.all != NULL ? comm_rank(s->ranks.all) : 0;
    TRY(path_join(s->a, s->folder.path, "logs/arenas", &folder));
    TRY(s->h->api->path_info(s->h, folder, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    text t = {.a = s->a};
    TRY(arena_print(s, at, &t));
    TRY(arena_format(s->a, &path, "%s/%d.json", folder, rank));
    if (host_write_all(s->h, path, t.bytes, t.length) == ST_OK) return ST_OK;
    session_say(s, LOG_WARN, "%.800s; chaos cannot flip bits of rank %d", error_last()->text, rank);
    error_clear();
    return ST_OK;
}
