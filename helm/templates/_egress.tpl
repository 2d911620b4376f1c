{{/* Rules of a NetworkPolicy for a list of destinations, each with `to` and `ports`. DNS goes over both protocols. */}}
{{- define "merchant-gateway.egress" -}}
{{- range . }}
- ports:
    {{- range .ports }}
    - { protocol: TCP, port: {{ . }} }
    {{- if eq (int .) 53 }}
    - { protocol: UDP, port: {{ . }} }
    {{- end }}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}
