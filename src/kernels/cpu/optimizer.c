// Updates that work element by element, in one pass over memory: unscale and clip, moments, decay,
// update, cast to the working copy. Memory traffic sets their time.
//
// The gradient operand is a raw accumulator; step->device.grad_factor scales it to the clipped
// mean. A skipped step and a halted run write nothing.
#include "op/optimizer.h"
#include "kernels/cpu/cpu_update.h"
#include "kernels/cpu/seal.h"
#include "op/op_kind.h"

typedef struct update_job {
    const kern_context *context;
    const cpu_update *update;
    cpu_cut cut; // of a call with a seal: into its tiles
    bool writes;
} update_job;

// Updates n elements of a row, the first of which is number `element` of the whole weight.
static void run_update(const cpu_update *u, int64_t row, int64_t column, int64_t n, int64_t element)
{
    cpu_update_span span = u->constants;
    cpu_span *const spans[] = {&span.grad,       &span.master, &span.m,     &span.v,
                               &span.master_out, &span.m_out,  &span.v_out, &span.weight_out};
    for (int64_t k = 0; k < CPU_UPDATE_TENSORS; k++) {
        if (u->tensors[k] == NULL) continue;
        *spans[k] = cpu_span_at(u->tensors[k], row * tensor_stride(u->tensors[k]) + column);
    }
    span.n = n;
    span.element = element;
    u->run(&span);
}

static void piece_update(const update_job *job, cpu_piece piece)
{
    const kern_call *c = job->update->call;
    const int64_t columns = c->in[0].ndim == 2 ? c->in[0].dims[1] : 1;
    const int slots_in = op_kind_of(c->code)->slots_in;
    const float *slots = slots_in > 0 ? c->in[slots_in].data : NULL;
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        // Contiguous operands were cut as one row.
        const int64_t at = c->first_row * columns + i * job->cut.columns + piece.column;
        for (int64_t done = 0; done < piece.columns;) {
            const optimizer_run run =
                optimizer_run_placed(&c->piece, &c->attrs, slots, at + done, columns);
            const int64_t n = min_i64(run.count, piece.columns - done);
            run_update(job->update, i, piece.column + done, n, run.element);
            done += n;
        }
    }
}

// The strips of a tile are summed while they are in the cache. A skipped step only compares.
static void tile_update(const update_job *job, int64_t index, cpu_piece tile)
{
    cpu_seal seal;
    const int64_t end = tile.column + tile.columns;
    cpu_seal_begin(job->context, job->update->call, index, &seal);
    for (int64_t at = tile.column; at < end; at += CPU_SEAL_STRIP) {
        const cpu_piece strip = {
            .rows = 1, .column = at, .columns = min_i64(CPU_SEAL_STRIP, end - at)};
        cpu_seal_before(&seal, at, strip.columns);
        if (!job->writes) continue;
        piece_update(job, strip);
        cpu_seal_after(&seal, at, strip.columns);
    }
    cpu_seal_end(&seal, job->writes);
}

static void update_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const update_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    if (job->update->call->seal != NULL) {
        tile_update(job, index, piece);
    } else {
        piece_update(job, piece);
    }
}

cpu_update_span cpu_update_constants(const kern_call *call)
{
    const op_attrs *a = &call->attrs;
    const step_block *step = call->step;
    const double beta1 = optimizer_beta(a->beta1), beta2 = optimizer_beta(a->beta2);
    const double lr = step->host.lr * (double)a->lr_scale;
    return (cpu_update_span){
        .factor = (float)step->device.grad_factor,
        .beta1 = (float)beta1,
        .rest1 = (float)(1.0 - beta1),
        .beta2 = (float)beta2,
        .rest2 = (float)(1.0 - beta2),
        .keep = (float)(1.0 - (a->decay ? lr * (double)a->weight_decay : 0.0)),
        .rate = (float)lr,
        .eps = a->eps,
        .stochastic = a->stochastic,
        .step = &step->host,
        .tensor_index = a->tensor_index,
    };
}

status cpu_update_run(const kern_context *context, const cpu_update *u)
{
    TRY(cpu_call_check(u->call));
    const step_block *step = u->call->step;
    update_job job = {.context = context, .update = u};
    job.writes = step->device.skip == 0 && step->device.halt == 0;
    if (!job.writes && u->call->seal == NULL) return ST_OK;
    bool contiguous = true;
    for (int i = 0; i < CPU_UPDATE_TENSORS; i++) {
        const kern_tensor *t = u->tensors[i];
        if (t != NULL && tensor_has(t)) contiguous = contiguous && tensor_contiguous(t);
    }
    const kern_tensor *grad = u->tensors[CPU_UPDATE_GRAD];
    const int64_t rows = tensor_rows(grad), columns = tensor_columns(grad);
    job.cut = cpu_cut_field(rows, columns, contiguous);
    if (u->call->seal != NULL) {
        ASSERT(contiguous);
        job.cut = cpu_cut_tiles(rows * columns, KERN_SEAL_ELEMENTS);
    }
    kern_parallel(context->pool, job.cut.count, update_task, &job);
    return ST_OK;
}

// Source: Loshchilov & Hutter 2019, arXiv:1711.05101. Decay uses the old value; eps is added
// outside the root, after bias correction; t counts applied updates, this one included.
status cpu_adamw(const kern_context *context, const kern_call *call)
{
    const op_attrs *a = &call->attrs;
    const double t = (double)call->step->device.applied;
    const double lr = call->step->host.lr * (double)a->lr_scale;
    cpu_update u = {.call = call,
                    .run = cpu_vec_of(context->level)->adamw,
                    .constants = cpu_update_constants(call),
                    .tensors = {&call->in[0], &call->in[1], &call->in[2], &call->in[3],
                                &call->out[0], &call->out[1], &call->out[2], &call->out[3]}};
    u.constants.rate = (float)(lr / (1.0 - pow(optimizer_beta(a->beta1), t)));
    u.constants.unbias2 = (float)(1.0 / (1.0 - pow(optimizer_beta(a->beta2), t)));
    return cpu_update_run(context, &u);
}
