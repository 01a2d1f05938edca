/* What each interpreter has of its own. */
#ifndef PWP_CONTEXT_H
#define PWP_CONTEXT_H

typedef struct pwp_context {
    /* The last failure; its kind is PW_OK before the first. */
    pw_error last;
} pwp_context;

/* In Pipework.xs, where Perl's macros for it belong. */
pwp_context *pwp_get_context(pTHX);

#endif
