// Encodes and decodes the payloads of control frames. The parser checks every field, because a peer
// that holds the key may still be faulty.
#include "control/message.h"

#include <string.h>

int64_t control_report_print(const control_report *r, uint8_t out[REPORT_BYTES_MAX])
{
    ASSERT(r->edge_count >= 0 && r->edge_count <= CONTROL_EDGES_MAX);
    const int64_t doing = (int64_t)strnlen(r->doing, CONTROL_DOING_BYTES - 1);
    control_put64(out, (uint64_t)r->step);
    control_put64(out + 8, r->counter);
    control_put64(out + 16, (uint64_t)r->step_ns);
    control_put64(out + 24, (uint64_t)r->own_ns);
    control_put64(out + 32, r->sequence);
    control_put64(out + 40, r->fingerprint);
    control_put16(out + 48, (uint16_t)r->edge_count);
    control_put16(out + 50, (uint16_t)doing);
    uint8_t *at = out + REPORT_FIXED_BYTES;
    for (int i = 0; i < r->edge_count; i++, at += EDGE_BYTES) {
        control_put32(at, (uint32_t)r->edges[i].rank);
        control_put32(at + 4, r->edges[i].group);
        control_put64(at + 8, r->edges[i].operation);
    }
    memcpy(at, r->doing, (size_t)doing);
    return at + doing - out;
}

static void copy_printable(const uint8_t *bytes, int64_t count, char *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = bytes[i] < 0x20 || bytes[i] >= 0x7f ? '?' : (char)bytes[i];
    }
    out[count] = '\0';
}

bool control_report_parse(const uint8_t *bytes, int64_t count, int ranks, control_report *out)
{
    if (count < REPORT_FIXED_BYTES) return false;
    control_report r = {
        .step = (int64_t)control_get64(bytes),
        .counter = control_get64(bytes + 8),
        .step_ns = (int64_t)control_get64(bytes + 16),
        .own_ns = (int64_t)control_get64(bytes + 24),
        .sequence = control_get64(bytes + 32),
        .fingerprint = control_get64(bytes + 40),
        .edge_count = control_get16(bytes + 48),
    };
    const int64_t doing = control_get16(bytes + 50);
    const int64_t day_ns = INT64_C(86400) * 1000000000;
    if (r.edge_count > CONTROL_EDGES_MAX || doing >= CONTROL_DOING_BYTES) return false;
    if (count != REPORT_FIXED_BYTES + r.edge_count * EDGE_BYTES + doing) return false;
    if (r.step_ns < 0 || r.step_ns > day_ns || r.own_ns < 0 || r.own_ns > day_ns) return false;
    const uint8_t *at = bytes + REPORT_FIXED_BYTES;
    for (int i = 0; i < r.edge_count; i++, at += EDGE_BYTES) {
        r.edges[i] = (control_edge){.rank = (int32_t)control_get32(at),
                                    .group = control_get32(at + 4),
                                    .operation = control_get64(at + 8)};
        if (r.edges[i].rank < 0 || r.edges[i].rank >= ranks) return false;
    }
    copy_printable(at, doing, r.doing);
    *out = r;
    return true;
}

void control_peer_print(const control_peer *p, uint8_t out[PEER_BYTES])
{
    memset(out, 0, PEER_BYTES);
    control_put64(out, p->machine);
    control_put64(out + 8, (uint64_t)p->pid);
    control_put64(out + 16, p->started);
    memcpy(out + 24, p->host, strnlen(p->host, CONTROL_HOST_BYTES - 1));
}

bool control_peer_parse(const uint8_t bytes[PEER_BYTES], control_peer *out)
{
    control_peer p = {.machine = control_get64(bytes),
                      .pid = (int64_t)control_get64(bytes + 8),
                      .started = control_get64(bytes + 16)};
    if (p.pid < 0 || p.pid > INT32_MAX || bytes[PEER_BYTES - 1] != 0) return false;
    copy_printable(bytes + 24, (int64_t)strnlen((const char *)bytes + 24, CONTROL_HOST_BYTES - 1),
                   p.host);
    *out = p;
    return true;
}

void control_text_parse(const uint8_t *bytes, int64_t count, char out[CONTROL_TEXT_BYTES])
{
    copy_printable(bytes, min_i64(count, CONTROL_TEXT_BYTES - 1), out);
}

void control_notice_push(notice_queue *q, const control_notice *n)
{
    if (q->count == NOTICES_MAX) return;
    q->items[(q->first + q->count) % NOTICES_MAX] = *n;
    q->count++;
}

bool control_notice_pop(notice_queue *q, control_notice *out)
{
    if (q->count == 0) return false;
    *out = q->items[q->first];
    q->first = (q->first + 1) % NOTICES_MAX;
    q->count--;
    return true;
}
