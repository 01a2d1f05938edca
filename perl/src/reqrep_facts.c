/* Facts about a segment, and operations on it as a whole. */
#include "reqrep.h"

#include <sys/stat.h>

#define PUT(hash, name, value) (void)hv_stores(hash, name, newSVuv(value))

static pwk_segment *segment_of(pTHX_ SV *self, int role) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    return channel->segment;
}

/* A reference to a new hash. */
static SV *hash_ref(pTHX_ HV **hash) {
    *hash = newHV();
    return sv_2mortal(newRV_noinc((SV *)*hash));
}

SV *pwp_reqrep_stats(pTHX_ SV *self, int role) {
    pwk_segment *segment = segment_of(aTHX_ self, role);
    pwk_geometry geometry;
    pwk_stats stats;
    pwk_blob_stats blobs;
    pwk_error error;
    struct stat file;
    HV *all;
    SV *result = hash_ref(aTHX_ &all);
    if (pwk_segment_stats(segment, &stats, sizeof stats, &error) != PWK_OK
        || pwk_segment_geometry(segment, &geometry, sizeof geometry, &error) != PWK_OK
        || pwk_segment_blob_stats(segment, &blobs, sizeof blobs, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    PUT(all, "size", pwk_segment_len(segment));
    PUT(all, "capacity", geometry.queue);
    PUT(all, "resp_slots", geometry.slots);
    PUT(all, "resp_data_max", geometry.reply_bytes);
    PUT(all, "mmap_size", fstat(pwk_segment_fd(segment), &file) == 0 ? (UV)file.st_size : 0);
    PUT(all, "requests", stats.requests);
    PUT(all, "replies", stats.replies);
    PUT(all, "send_full", stats.full);
    PUT(all, "recv_empty", stats.empty);
    PUT(all, "recoveries", stats.recovered);
    /* Waiters are not counted. */
    PUT(all, "recv_waiters", 0);
    PUT(all, "send_waiters", 0);
    PUT(all, "slot_waiters", 0);
    PUT(all, "cancelled", stats.cancelled);
    PUT(all, "dead_members", stats.dead_members);
    PUT(all, "redelivered", stats.redelivered);
    PUT(all, "blob_bytes_held", blobs.held);
    PUT(all, "blobs_copied", blobs.copied);
    if (!PWP_IS_INT(role)) {
        PUT(all, "arena_cap", geometry.request_bytes);
        PUT(all, "arena_used", 0);
    }
    return result;
}

SV *pwp_reqrep_audit(pTHX_ SV *self, int role) {
    pwk_audit audit;
    pwk_error error;
    HV *all;
    SV *result;
    if (pwk_segment_audit(segment_of(aTHX_ self, role), &audit, sizeof audit, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    result = hash_ref(aTHX_ &all);
    PUT(all, "free", audit.free);
    PUT(all, "filling", audit.filling);
    PUT(all, "waiting", audit.waiting);
    PUT(all, "taken", audit.taken);
    PUT(all, "dropped", audit.dropped);
    PUT(all, "in_parts", audit.in_parts);
    PUT(all, "done", audit.done);
    PUT(all, "damaged", audit.damaged);
    PUT(all, "orphaned", audit.orphaned);
    PUT(all, "unqueued", audit.unqueued);
    PUT(all, "entries", audit.entries);
    return result;
}

SV *pwp_reqrep_geometry(pTHX_ SV *self, int role, SV *path) {
    pwk_geometry geometry;
    pwk_error error;
    pwk_status status;
    HV *all;
    SV *result;
    if (path) path = pwp_fetch(aTHX_ path);
    if (path && !SvROK(self)) {
        status = pwk_geometry_of_path(pwp_path(aTHX_ path, "geometry"), &geometry, sizeof geometry,
                                      &error);
    } else {
        status = pwk_segment_geometry(segment_of(aTHX_ self, role), &geometry, sizeof geometry,
                                      &error);
    }
    if (status != PWK_OK) pwp_throw(aTHX_ &error);
    result = hash_ref(aTHX_ &all);
    PUT(all, "slots", geometry.slots);
    PUT(all, "queue", geometry.queue);
    PUT(all, "request_bytes", geometry.request_bytes);
    PUT(all, "reply_bytes", geometry.reply_bytes);
    PUT(all, "members", geometry.members);
    PUT(all, "blobs", geometry.blobs);
    PUT(all, "integers", pwp_is_of_integers(&geometry));
    return result;
}

I32 pwp_reqrep_members(pTHX_ I32 ax, SV *self, int role) {
    pwp_channel *channel = pwp_state(aTHX_ self, &pwp_reqrep_classes[role]);
    size_t most = channel->geometry.members, count = 0;
    /* A mortal, so that it is freed in any case. */
    pwk_member *members = (pwk_member *)SvPVX(sv_2mortal(newSV(most * sizeof *members)));
    pwk_error error;
    dSP;
    if (pwk_segment_members(channel->segment, members, most, &count, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    if (count > most) count = most;
    EXTEND(SP, (SSize_t)count);
    PERL_UNUSED_VAR(sp);
    for (size_t i = 0; i < count; i++) {
        HV *one;
        ST(i) = hash_ref(aTHX_ &one);
        PUT(one, "number", members[i].number);
        PUT(one, "pid", members[i].pid);
        (void)hv_stores(one, "role",
                        newSVpv(members[i].role == PWK_CLIENT ? "client" : "server", 0));
        (void)hv_stores(one, "since", newSVnv((NV)members[i].since_ns / 1e9));
        (void)hv_stores(one, "alive", newSVsv(boolSV(members[i].is_alive)));
    }
    return (I32)count;
}

UV pwp_reqrep_recover(pTHX_ SV *self, int role) {
    size_t dead = 0;
    pwk_error error;
    if (pwk_segment_recover(segment_of(aTHX_ self, role), &dead, &error) != PWK_OK) {
        pwp_throw(aTHX_ &error);
    }
    return dead;
}

void pwp_reqrep_sync(pTHX_ SV *self, int role) {
    pwk_error error;
    if (pwk_segment_sync(segment_of(aTHX_ self, role), &error) == PWK_OK) return;
    pwp_failed(aTHX_ &error);
    croak("%s->sync: %s", pwp_class_called(aTHX_ role), Strerror(errno));
}
