/* Payloads: strings with their UTF-8 flag, or the eight bytes of an integer. */
#include "reqrep.h"

/* More than this is not kept for the next call. */
#define SCRATCH_KEPT (1 << 20)

/* Croaks if it is no number of 64 bits; a fraction is cut off, as Perl does. */
static int64_t integer_of(pTHX_ SV *fetched, const char *name) {
    bool is_in_range;
    if (SvIOK(fetched)) {
        if (!SvIsUV(fetched) || SvUVX(fetched) <= (UV)IV_MAX) return SvIVX(fetched);
        is_in_range = false;
    } else {
        UV whole = 0;
        int kind = SvPOK(fetched) && !SvNOK(fetched)
                       ? grok_number(SvPVX_const(fetched), SvCUR(fetched), &whole)
                       : 0;
        if ((kind & IS_NUMBER_IN_UV) && !(kind & IS_NUMBER_GREATER_THAN_UV_MAX)) {
            bool is_negative = kind & IS_NUMBER_NEG;
            if (whole <= (UV)IV_MAX) return is_negative ? -(IV)whole : (IV)whole;
            is_in_range = is_negative && whole == (UV)IV_MAX + 1;
            if (is_in_range) return IV_MIN;
        } else {
            NV number = pwp_real(aTHX_ fetched);
            /* -2**63 is one, 2**63 is not, and neither is NaN. */
            is_in_range = number >= (NV)IV_MIN && number < -(NV)IV_MIN;
            if (is_in_range) return (IV)number;
        }
    }
    croak("%s: number out of range", name);
}

pwp_payload pwp_payload_of(pTHX_ SV *fetched, int role) {
    pwp_payload payload = PWP_NO_PAYLOAD;
    if (PWP_IS_INT(role)) {
        payload.is_number = true;
        payload.bytes.len = PWP_INT_BYTES;
        payload.number = integer_of(aTHX_ fetched, PWP_IS_CLIENT(role) ? "request" : "response");
    } else {
        payload.bytes.data = SvPV_nomg_const(fetched, payload.bytes.len);
        payload.flags = SvUTF8(fetched) ? PWP_IS_UTF8 : 0;
    }
    return payload;
}

void pwp_payload_keep(pTHX_ pwp_payload *payload) {
    const char *data = payload->bytes.len ? payload->bytes.data : "";
    if (payload->is_number) return;
    payload->bytes.data = SvPVX(newSVpvn_flags(data, payload->bytes.len, SVs_TEMP));
}

SV *pwp_payload_sv(pTHX_ const pwp_payload *payload, int role) {
    SV *value;
    if (PWP_IS_INT(role)) {
        /* A request of another size was written by no client of ours; zero is as wrong as any. */
        int64_t number = 0;
        if (payload->bytes.len == sizeof number) memcpy(&number, payload->bytes.data, sizeof number);
        return sv_2mortal(newSViv(number));
    }
    value = pwp_string(aTHX_ payload->bytes.data, payload->bytes.len);
    if ((payload->flags & PWP_IS_UTF8) && is_utf8_string((U8 *)SvPVX(value), SvCUR(value))) {
        SvUTF8_on(value);
    }
    return value;
}

pwk_buffer *pwp_scratch(pTHX) {
    return &pwp_get_context(aTHX)->scratch;
}

void pwp_scratch_done(pTHX) {
    pwk_buffer *scratch = pwp_scratch(aTHX);
    if (scratch->capacity > SCRATCH_KEPT) pwk_buffer_free(scratch);
}
