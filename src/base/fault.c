// Fault points: a plan of named hits that fail.
//
// This is the only state of the program that is not passed in: a fault must reach code whose
// callers do not know about tests. An unarmed point costs one relaxed load. While a plan is armed,
// a mutex guards the plan and the counts, so that counts are exact with any number of threads.
#include "base/fault.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RULES = 32, MAX_NAMES = 256, MAX_NAME_BYTES = 64 };

typedef struct fault_rule {
    char name[MAX_NAME_BYTES]; // "*": any
    int64_t hit;               // 0: never fails, only counts
    bool and_later;
    status code;
} fault_rule;

typedef struct fault_count {
    char name[MAX_NAME_BYTES];
    int64_t hits;
} fault_count;

static atomic_bool armed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fault_rule rules[MAX_RULES];
static int rule_count;
static fault_count counts[MAX_NAMES]; // a full table counts further names in the total only
static int name_count;
static int64_t total_hits;

static fault_count *count_of(const char *name)
{
    for (int i = 0; i < name_count; i++) {
        if (strcmp(counts[i].name, name) == 0) return &counts[i];
    }
    return NULL;
}

static fault_count *count_or_add(const char *name)
{
    fault_count *c = count_of(name);
    if (c != NULL || name_count == MAX_NAMES) return c;
    c = &counts[name_count++];
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->hits = 0;
    return c;
}

static const fault_rule *rule_that_fails(const char *name, int64_t hits, int64_t total)
{
    for (int i = 0; i < rule_count; i++) {
        const fault_rule *r = &rules[i];
        const bool any = strcmp(r->name, "*") == 0;
        if (!any && strcmp(r->name, name) != 0) continue;
        const int64_t seen = any ? total : hits;
        if (r->hit > 0 && (seen == r->hit || (r->and_later && seen > r->hit))) return r;
    }
    return NULL;
}

status fault_point(const char *name)
{
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) return ST_OK;
    pthread_mutex_lock(&lock);
    total_hits++;
    fault_count *c = count_or_add(name);
    const int64_t hits = c == NULL ? 0 : ++c->hits;
    const fault_rule *r = rule_that_fails(name, hits, total_hits);
    const status code = r == NULL ? ST_OK : r->code;
    pthread_mutex_unlock(&lock);
    if (code == ST_OK) return ST_OK;
    return fail(code, "fault point %s fails at hit %lld, as the fault plan says", name,
                (long long)hits);
}

void fault_flip(const char *name, char *byte)
{
    if (fault_point(name) == ST_OK) return;
    error_clear();
    *byte ^= 0x10;
}

static bool code_of(const char *name, size_t length, status *out)
{
    for (int i = 1; i < STATUS_COUNT; i++) {
        const char *known = status_name((status)i);
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            *out = (status)i;
            return true;
        }
    }
    return false;
}

// Parses name=k or name=k+, either with :CODE.
static status parse_rule(const char *item, size_t length, fault_rule *out)
{
    const char *end = item + length, *equals = memchr(item, '=', length);
    fault_rule r = {.code = ST_IO};
    if (equals == NULL || equals == item || equals - item >= MAX_NAME_BYTES) goto malformed;
    memcpy(r.name, item, (size_t)(equals - item));
    const char *at = equals + 1;
    if (at == end || *at < '0' || *at > '9') goto malformed;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (r.hit > INT32_MAX) goto malformed;
        r.hit = r.hit * 10 + (*at - '0');
    }
    if (at < end && *at == '+') {
        r.and_later = true;
        at++;
    }
    if (at < end && *at == ':') {
        if (!code_of(at + 1, (size_t)(end - at - 1), &r.code)) goto malformed;
        at = end;
    }
    if (at != end) goto malformed;
    *out = r;
    return ST_OK;
malformed:
    return fail(ST_USAGE, "fault plan: \"%.*s\" is not name=k, name=k+ or name=k:CODE",
                (int)(length > 200 ? 200 : length), item);
}

status fault_arm(const char *plan)
{
    fault_rule parsed[MAX_RULES];
    int count = 0;
    for (const char *at = plan; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, ",");
        if (count == MAX_RULES) return fail(ST_USAGE, "fault plan: more than %d rules", MAX_RULES);
        TRY(parse_rule(at, length, &parsed[count]));
        count++;
        at += length;
        if (*at == ',') at++;
    }
    pthread_mutex_lock(&lock);
    memcpy(rules, parsed, (size_t)count * sizeof(rules[0]));
    rule_count = count;
    name_count = 0;
    total_hits = 0;
    atomic_store(&armed, plan != NULL);
    pthread_mutex_unlock(&lock);
    return ST_OK;
}

int64_t fault_hits(const char *name)
{
    pthread_mutex_lock(&lock);
    const fault_count *c = count_of(name);
    const int64_t hits = strcmp(name, "*") == 0 ? total_hits : c == NULL ? 0 : c->hits;
    pthread_mutex_unlock(&lock);
    return hits;
}
