// Statements of a rendering: scopes, loops, macros and the output.
//
// A loop's round and a macro have scopes of their own; `set` writes the innermost one, so what a
// loop must keep goes into a namespace. `if` has none.
#include "data/jinja/jinja_internal.h"

#include <string.h>

status run_spend(jinja_run *r, int32_t at, int64_t steps)
{
    r->steps += steps;
    if (r->steps <= JINJA_STEPS_MAX) return ST_OK;
    return jinja_fail(r->s, at, "the template takes more than %d steps", JINJA_STEPS_MAX);
}

status run_enter(jinja_run *r, int32_t at)
{
    if (++r->depth <= JINJA_DEPTH_MAX) return ST_OK;
    return jinja_fail(r->s, at, "macros or statements nested deeper than %d levels",
                      JINJA_DEPTH_MAX);
}

void run_leave(jinja_run *r)
{
    r->depth--;
}

// ---- variables ----------------------------------------------------------------------------------

static variable *frame_find(const frame *f, slice name)
{
    for (int64_t i = f->count - 1; i >= 0; i--) {
        if (slice_equal(f->items[i].name, name)) return &f->items[i];
    }
    return NULL;
}

bool run_find(const jinja_run *r, slice name, value *out)
{
    for (const frame *f = r->frame; f != NULL; f = f->parent) {
        const variable *v = frame_find(f, name);
        if (v == NULL) continue;
        *out = v->value;
        return true;
    }
    return false;
}

status run_set(jinja_run *r, slice name, value v)
{
    frame *f = r->frame;
    variable *there = frame_find(f, name);
    if (there != NULL) {
        there->value = v;
        return ST_OK;
    }
    TRY(run_spend(r, 0, f->count / 16));
    TRY(arena_grow(r->a, (void **)&f->items, &f->capacity, f->count + 1, sizeof(variable)));
    f->items[f->count++] = (variable){name, v};
    return ST_OK;
}

static status frame_begin(jinja_run *r, frame *parent)
{
    frame *f = NULL;
    TRY(arena_new(r->a, 1, &f));
    f->parent = parent;
    r->frame = f;
    return ST_OK;
}

// ---- statements ---------------------------------------------------------------------------------

static status set_member(jinja_run *r, const node *target, value v)
{
    value space = {.kind = VALUE_NONE};
    if (!run_find(r, target->a->name, &space) || space.kind != VALUE_NAMESPACE) {
        return jinja_fail(r->s, target->at, "set of a member of %.*s, which is no namespace",
                          (int)min_i64(target->a->name.count, 60), target->a->name.bytes);
    }
    const slice name = target->name;
    return value_map_set(r, space.as.map, value_of_text(name.bytes, name.count), v);
}

static status set_targets(jinja_run *r, const node *n, value v)
{
    value_list *items = NULL;
    const node_list *targets = &n->targets;
    if (targets->count > 1) {
        TRY(value_items(r, n->at, &v, &items));
        if (items->count != targets->count) {
            return jinja_fail(r->s, n->at, "%lld values for %lld names", (long long)items->count,
                              (long long)targets->count);
        }
    }
    for (int64_t i = 0; i < targets->count; i++) {
        const node *target = targets->items[i];
        const value one = items != NULL ? items->items[i] : v;
        TRY(target->kind == NODE_NAME ? run_set(r, target->name, one) : set_member(r, target, one));
    }
    return ST_OK;
}

static status run_output(jinja_run *r, const node *n)
{
    value v = {.kind = VALUE_NONE};
    TRY(evaluate(r, n->a, &v));
    return value_print(r, r->out, &v, false);
}

status run_body_text(jinja_run *r, const node *n, value *out)
{
    text t = {.a = r->a};
    text *outer = r->out;
    r->out = &t;
    r->marks_off++;
    TRY(run_body(r, n));
    r->marks_off--;
    r->out = outer;
    *out = value_of_text(t.length > 0 ? t.bytes : "", t.length);
    return ST_OK;
}

static status run_set_body(jinja_run *r, const node *n)
{
    const value outer = r->body;
    value v = {.kind = VALUE_NONE};
    TRY(run_body_text(r, n->c, &r->body));
    TRY(evaluate(r, n->kind == NODE_SET_BODY ? n->b : n->a, &v));
    r->body = outer;
    return n->kind == NODE_SET_BODY ? set_targets(r, n, v) : value_print(r, r->out, &v, false);
}

static status run_generation(jinja_run *r, const node *n)
{
    jinja_result *o = r->result;
    const int64_t begin = r->out->length;
    if (r->marks_off > 0) {
        return jinja_fail(r->s, n->at, "generation inside of a macro, a filter or a set body");
    }
    r->marks_off++; // marks do not nest
    TRY(run_body(r, n->c));
    r->marks_off--;
    TRY(arena_grow(r->a, (void **)&o->marks, &o->mark_capacity, o->mark_count + 1,
                   sizeof(jinja_span)));
    o->marks[o->mark_count++] = (jinja_span){begin, r->out->length};
    return ST_OK;
}

static status run_if(jinja_run *r, const node *n)
{
    value condition = {.kind = VALUE_NONE};
    TRY(evaluate(r, n->a, &condition));
    if (value_truth(&condition)) return run_body(r, n->b);
    if (n->c == NULL) return ST_OK;
    if (n->c->kind != NODE_IF) return run_body(r, n->c);
    TRY(run_enter(r, n->at));
    TRY(run_if(r, n->c));
    run_leave(r);
    return ST_OK;
}

// ---- loops --------------------------------------------------------------------------------------

// The items that the loop's own condition keeps.
static status loop_filter(jinja_run *r, const node *n, value_list **items)
{
    value_list *kept = NULL;
    frame *outer = r->frame;
    TRY(value_list_new(r, &kept));
    TRY(frame_begin(r, outer));
    for (int64_t i = 0; i < (*items)->count; i++) {
        value condition = {.kind = VALUE_NONE};
        TRY(set_targets(r, n, (*items)->items[i]));
        TRY(evaluate(r, n->b, &condition));
        if (value_truth(&condition)) TRY(value_list_add(r, kept, (*items)->items[i]));
    }
    r->frame = outer;
    *items = kept;
    return ST_OK;
}

static int64_t loop_depth(const jinja_run *r)
{
    value v = {.kind = VALUE_NONE};
    const slice name = {"loop", 4};
    return run_find(r, name, &v) && v.kind == VALUE_LOOP ? v.as.loop->depth : -1;
}

static status run_for(jinja_run *r, const node *n)
{
    value over = {.kind = VALUE_NONE};
    value_list *items = NULL;
    loop *l = NULL;
    frame *outer = r->frame;
    TRY(evaluate(r, n->a, &over));
    TRY(value_items(r, n->at, &over, &items));
    if (n->b != NULL) TRY(loop_filter(r, n, &items));
    if (items->count == 0) return n->d != NULL ? run_body(r, n->d) : ST_OK;
    TRY(arena_new(r->a, 1, &l));
    l->list = items;
    l->depth = loop_depth(r) + 1;
    const slice name = {"loop", 4};
    for (; l->at < items->count && r->flow != FLOW_BREAK; l->at++) {
        r->flow = FLOW_ON;
        TRY(run_spend(r, n->at, 4));
        TRY(frame_begin(r, outer));
        TRY(run_set(r, name, (value){.kind = VALUE_LOOP, .as.loop = l}));
        TRY(set_targets(r, n, items->items[l->at]));
        TRY(run_body(r, n->c));
    }
    r->flow = FLOW_ON;
    r->frame = outer;
    return ST_OK;
}

// ---- macros -------------------------------------------------------------------------------------

static status define_macro(jinja_run *r, const node *n)
{
    macro *m = NULL;
    TRY(arena_new(r->a, 1, &m));
    *m = (macro){n, r->frame};
    return run_set(r, n->name, (value){.kind = VALUE_MACRO, .as.macro = m});
}

static int64_t parameter_of(const node *m, slice name)
{
    for (int64_t i = 0; i < m->items.count; i++) {
        if (slice_equal(m->items.items[i]->name, name)) return i;
    }
    return -1;
}

static status bind_parameters(jinja_run *r, const node *call, const node *m,
                              const call_arguments *arguments)
{
    const int64_t placed = arguments->count - arguments->named_count;
    if (placed > m->items.count) {
        return jinja_fail(r->s, call->at, "%lld arguments for a macro of %lld",
                          (long long)arguments->count, (long long)m->items.count);
    }
    for (int64_t i = 0; i < placed; i++) {
        TRY(run_set(r, m->items.items[i]->name, arguments->values[i]));
    }
    for (int64_t i = 0; i < arguments->named_count; i++) {
        if (parameter_of(m, arguments->names[i]) < placed) {
            return jinja_fail(r->s, call->at, "the macro takes no argument %.*s here",
                              (int)min_i64(arguments->names[i].count, 60),
                              arguments->names[i].bytes);
        }
        TRY(run_set(r, arguments->names[i], arguments->values[placed + i]));
    }
    for (int64_t i = placed; i < m->items.count; i++) {
        const node *parameter = m->items.items[i];
        value v = {.kind = VALUE_UNDEFINED};
        if (frame_find(r->frame, parameter->name) != NULL) continue;
        if (parameter->a != NULL) TRY(evaluate(r, parameter->a, &v));
        TRY(run_set(r, parameter->name, v));
    }
    return ST_OK;
}

status run_macro(jinja_run *r, const node *call, const macro *m, const call_arguments *arguments,
                 value *out)
{
    frame *outer = r->frame;
    TRY(run_enter(r, call->at));
    TRY(run_spend(r, call->at, 4));
    TRY(frame_begin(r, m->frame));
    TRY(bind_parameters(r, call, m->node, arguments));
    TRY(run_body_text(r, m->node->c, out));
    r->frame = outer;
    run_leave(r);
    return ST_OK;
}

// ---- bodies -------------------------------------------------------------------------------------

static status run_statement(jinja_run *r, const node *n)
{
    if (n->kind == NODE_DATA) {
        const value v = value_of_text(n->name.bytes, n->name.count);
        return value_print(r, r->out, &v, false);
    }
    if (n->kind == NODE_OUTPUT) return run_output(r, n);
    if (n->kind == NODE_IF) return run_if(r, n);
    if (n->kind == NODE_FOR) return run_for(r, n);
    if (n->kind == NODE_MACRO) return define_macro(r, n);
    if (n->kind == NODE_GENERATION) return run_generation(r, n);
    if (n->kind == NODE_SET_BODY || n->kind == NODE_FILTER_BODY) return run_set_body(r, n);
    if (n->kind == NODE_SET) {
        value v = {.kind = VALUE_NONE};
        TRY(evaluate(r, n->a, &v));
        return set_targets(r, n, v);
    }
    ASSERT(n->kind == NODE_BREAK || n->kind == NODE_CONTINUE);
    r->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    return ST_OK;
}

status run_body(jinja_run *r, const node *n)
{
    TRY(run_enter(r, n->at));
    for (int64_t i = 0; i < n->items.count && r->flow == FLOW_ON; i++) {
        TRY(run_spend(r, n->items.items[i]->at, 1));
        TRY(run_statement(r, n->items.items[i]));
    }
    run_leave(r);
    return ST_OK;
}

static status set_variables(jinja_run *r)
{
    const jinja_context *c = r->context;
    for (int64_t i = 0; i < c->variable_count; i++) {
        const jinja_variable *from = &c->variables[i];
        value v = {.kind = VALUE_UNDEFINED};
        if (from->is_bool) {
            v = value_of_bool(from->truth);
        } else if (from->value != NULL) {
            TRY(value_of_json(r, from->value, &v));
        } else if (from->string != NULL) {
            v = value_of_word(from->string);
        }
        if (c->limited != NULL && strcmp(c->limited, from->name) == 0 && v.kind == VALUE_LIST) {
            v.as.list->count = min_i64(v.as.list->count, c->list_limit);
        }
        const slice name = {from->name, (int64_t)strlen(from->name)};
        if (v.kind != VALUE_UNDEFINED) TRY(run_set(r, name, v));
    }
    return ST_OK;
}

status jinja_render(const jinja_template *t, arena *a, const jinja_context *c, jinja_result *out)
{
    *out = (jinja_result){.out = {.a = a}};
    jinja_run r = {.s = &t->source, .a = a, .context = c, .result = out, .out = &out->out};
    TRY(frame_begin(&r, NULL));
    TRY(set_variables(&r));
    TRY(run_body(&r, t->body));
    return text_add(&out->out, "%s", ""); // an empty text has bytes too
}
