/* Failures: $!, the text of Pipework::error(), and exceptions. */
#include "pwperl.h"

SV *pwp_error_text(pTHX_ const pwk_error *error) {
    char text[512];
    size_t len = pwk_error_text(error, text, sizeof text);
    return newSVpvn_flags(text, len < sizeof text ? len : sizeof text - 1, SVs_TEMP);
}

static int errno_of(const pwk_error *error) {
    return error->os > 0 ? error->os : pwk_status_errno(error->kind);
}

void pwp_failed(pTHX_ const pwk_error *error) {
    pwp_failed_because(aTHX_ error, NULL, 0);
}

void pwp_failed_because(pTHX_ const pwk_error *error, const void *reason, size_t len) {
    pwp_context *context = pwp_get_context(aTHX);
    context->last = *error;
    /* Without memory for it, the reason is left out. */
    if (len && pwk_buffer_reserve(&context->reason, len, NULL) != PWK_OK) len = 0;
    if (len) memcpy(context->reason.data, reason, len);
    context->reason.len = len;
    errno = errno_of(error);
}

SV *pwp_last_reason(pTHX) {
    pwk_buffer *reason = &pwp_get_context(aTHX)->reason;
    SV *text;
    if (!reason->len) return NULL;
    text = newSVpvn_flags(reason->data, reason->len, SVs_TEMP);
    sv_utf8_decode(text);
    return text;
}

/* The last failure as a text, with the reason behind it. */
static SV *last_text(pTHX) {
    SV *text = pwp_error_text(aTHX_ &pwp_get_context(aTHX)->last);
    SV *reason = pwp_last_reason(aTHX);
    if (reason) {
        sv_catpvs(text, ": ");
        sv_catsv(text, reason);
    }
    return text;
}

SV *pwp_last_error(pTHX) {
    pwp_context *context = pwp_get_context(aTHX);
    SV *both;
    if (context->last.kind == PWK_OK) return sv_2mortal(newSVpvs(""));
    both = last_text(aTHX);
    SvUPGRADE(both, SVt_PVIV);
    SvIV_set(both, context->last.kind);
    SvIOK_on(both);
    return both;
}

static bool is_ours(const char *package) {
    return package && !strncmp(package, "Pipework", 8) && (!package[8] || package[8] == ':');
}

/* The line of the program that called, behind all modules of the distribution. */
static const COP *calling(pTHX) {
    const COP *place = PL_curcop;
    const PERL_CONTEXT *frame;
    I32 level = 0;
    while (is_ours(CopSTASHPV(place)) && (frame = caller_cx(level++, NULL))) {
        place = frame->blk_oldcop;
    }
    return place;
}

static SV *exception_because(pTHX_ const pwk_error *error, const void *reason, size_t len) {
    HV *fields = newHV();
    SV *exception = sv_2mortal(newRV_noinc((SV *)fields));
    SV *why;
    const COP *place = calling(aTHX);
    pwp_failed_because(aTHX_ error, reason, len);
    why = pwp_last_reason(aTHX);
    (void)hv_stores(fields, "kind", newSViv(error->kind));
    (void)hv_stores(fields, "op", newSVpv(error->op, 0));
    (void)hv_stores(fields, "errno", newSViv(errno_of(error)));
    (void)hv_stores(fields, "done", newSVuv(error->done));
    (void)hv_stores(fields, "text", SvREFCNT_inc(last_text(aTHX)));
    (void)hv_stores(fields, "file", newSVpv(CopFILE(place), 0));
    (void)hv_stores(fields, "line", newSVuv(CopLINE(place)));
    if (why) (void)hv_stores(fields, "reason", SvREFCNT_inc(why));
    sv_bless(exception, gv_stashpvs("Pipework::Error", GV_ADD));
    return exception;
}

SV *pwp_exception(pTHX_ const pwk_error *error) {
    return exception_because(aTHX_ error, NULL, 0);
}

void pwp_throw(pTHX_ const pwk_error *error) {
    croak_sv(pwp_exception(aTHX_ error));
}

void pwp_throw_because(pTHX_ const pwk_error *error, const void *reason, size_t len) {
    croak_sv(exception_because(aTHX_ error, reason, len));
}
