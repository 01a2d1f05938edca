/* Payloads: strings with their UTF-8 flag, or single numbers. */
#include "reqrep.h"
#include "context.h"

/* More than this is not kept for the next call. */
#define SCRATCH_KEPT (1 << 20)

pwp_payload pwp_payload_of(pTHX_ SV *fetched, int role) {
    pwp_payload payload = {{NULL, 0}, 0, 0};
    if (PWP_IS_INT(role)) {
        payload.number = SvIV_nomg(fetched);
    } else {
        payload.bytes.data = SvPV_nomg_const(fetched, payload.bytes.len);
        payload.flags = SvUTF8(fetched) ? PWP_IS_UTF8 : 0;
    }
    return payload;
}

void pwp_payload_keep(pTHX_ pwp_payload *payload) {
    const char *data = payload->bytes.len ? payload->bytes.data : "";
    payload->bytes.data = SvPVX(newSVpvn_flags(data, payload->bytes.len, SVs_TEMP));
}

SV *pwp_payload_sv(pTHX_ const pwp_payload *payload, int role) {
    const char *data = payload->bytes.len ? payload->bytes.data : "";
    SV *value;
    if (PWP_IS_INT(role)) return sv_2mortal(newSViv(payload->number));
    value = newSVpvn_flags(data, payload->bytes.len, SVs_TEMP);
    if ((payload->flags & PWP_IS_UTF8) && is_utf8_string((const U8 *)data, payload->bytes.len)) {
        SvUTF8_on(value);
    }
    return value;
}

pw_buffer *pwp_scratch(pTHX) {
    return &pwp_get_context(aTHX)->scratch;
}

void pwp_scratch_done(pTHX) {
    pw_buffer *scratch = pwp_scratch(aTHX);
    if (scratch->capacity > SCRATCH_KEPT) pw_buffer_free(scratch);
}
