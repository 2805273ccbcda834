{{/* A file of objects that no value changes, in the release's namespace. */}}
{{- define "hami-dra.file" -}}
{{- .root.Files.Get (printf "files/%s.yaml" .name) | replace "hami-dra-system" .root.Release.Namespace -}}
{{- end }}

{{/* The policy file. */}}
{{- define "hami-dra.policy" -}}
{{- .Values.policy | default (.Files.Get "files/policy.yaml") -}}
{{- end }}

{{/* The registration and the guard that fit the policy, or an error. */}}
{{- define "hami-dra.admission" -}}
{{- $text := .Values.admission | default (.Files.Get "files/admission.yaml") -}}
{{- $digest := include "hami-dra.policy" . | sha256sum -}}
{{- if not (contains (printf "# policy-sha256: %s\n" $digest) $text) -}}
{{- fail "the values policy and admission do not fit each other: the API server would call the webhook for other pods than the policy means. Write both with: hami-dra install --policy FILE --helm-values > values-policy.yaml" -}}
{{- end -}}
{{- $text | replace "hami-dra-system" .Release.Namespace -}}
{{- end }}

{{/* What the pods are selected by. */}}
{{- define "hami-dra.selector" -}}
app.kubernetes.io/name: hami-dra-webhook
{{- end }}

{{/* What everything is labelled with. */}}
{{- define "hami-dra.labels" -}}
app.kubernetes.io/part-of: hami-dra
{{- end }}

{{- define "hami-dra.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
