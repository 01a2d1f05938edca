/* What a reader gives out, as Perl values. */
#include "atomic.h"

SV *pwp_atomic_data(pTHX_ const pwk_item *item) { return pwp_string(aTHX_ item->data, item->len); }

SV *pwp_atomic_compressed(pTHX_ const pwk_item *item) {
    return item->compressed ? pwp_string(aTHX_ item->compressed, item->compressed_len) : NULL;
}

SV *pwp_atomic_type(pTHX_ const pwk_item *item) {
    switch (item->kind) {
        case PWK_ITEM_LINE: return newSVpvs_flags("line", SVs_TEMP);
        case PWK_ITEM_BURST: return newSVpvs_flags("burst", SVs_TEMP);
        case PWK_ITEM_MESSAGE: return newSVpvs_flags("message", SVs_TEMP);
        default: return newSVpvs_flags("torn", SVs_TEMP);
    }
}

SV *pwp_atomic_key(pTHX_ pwk_key key) {
    return sv_2mortal(newSVpvf("%d:%d", (int)key.pid, (int)key.tid));
}

/* The names are those of Pipework::Error. */
static const char *kind_of(pwk_status torn) {
    switch (torn) {
        case PWK_TOO_LONG: return "TooLong";
        case PWK_CORRUPT: return "Corrupt";
        case PWK_INCOMPATIBLE: return "Incompatible";
        default: return "Torn";
    }
}

/* Puts a mortal into a hash. */
static void put(pTHX_ HV *fields, const char *name, SV *value) {
    (void)hv_store(fields, name, (I32)strlen(name), SvREFCNT_inc_simple_NN(value), 0);
}

static void put_number(pTHX_ HV *fields, const char *name, IV number) {
    (void)hv_store(fields, name, (I32)strlen(name), newSViv(number), 0);
}

static void put_data(pTHX_ HV *fields, const char *name, const pwk_item *item) {
    put(aTHX_ fields, name, pwp_atomic_data(aTHX_ item));
    if (item->compressed) put(aTHX_ fields, "compressed", pwp_atomic_compressed(aTHX_ item));
}

static bool has_writer(const pwk_item *item) { return item->writer.pid != 0; }

SV *pwp_atomic_debug(pTHX_ const pwk_item *item) {
    HV *fields = newHV();
    SV *found = sv_2mortal(newRV_noinc((SV *)fields));
    AV *ids = newAV();
    uint32_t id = item->parts;
    (void)hv_stores(fields, "parts", newRV_noinc((SV *)ids));
    while (id-- > 0) av_push(ids, newSVuv(id));
    put_number(aTHX_ fields, "pid", item->writer.pid);
    put_number(aTHX_ fields, "tid", item->writer.tid);
    put_data(aTHX_ fields, "message", item);
    return found;
}

SV *pwp_atomic_report(pTHX_ const pwk_item *torn) {
    HV *fields = newHV();
    SV *report = sv_2mortal(newRV_noinc((SV *)fields));
    if (has_writer(torn)) put(aTHX_ fields, "writer", pwp_atomic_key(aTHX_ torn->writer));
    (void)hv_stores(fields, "kind", newSVpv(kind_of(torn->torn), 0));
    put_number(aTHX_ fields, "parts", torn->parts);
    put_number(aTHX_ fields, "bytes", (IV)torn->torn_bytes);
    return report;
}

SV *pwp_atomic_item(pTHX_ const pwk_item *item) {
    bool is_torn = item->kind == PWK_ITEM_TORN;
    SV *found = is_torn ? pwp_atomic_report(aTHX_ item) : sv_2mortal(newRV_noinc((SV *)newHV()));
    HV *fields = (HV *)SvRV(found);
    put(aTHX_ fields, "type", pwp_atomic_type(aTHX_ item));
    if (is_torn) return found;
    put_data(aTHX_ fields, "data", item);
    if (has_writer(item)) {
        put(aTHX_ fields, "writer", pwp_atomic_key(aTHX_ item->writer));
        put_number(aTHX_ fields, "parts", item->parts);
    }
    return found;
}
