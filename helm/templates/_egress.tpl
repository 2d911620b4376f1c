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

{{/* The ports of URLs and of host:port, as a list in JSON. One that only the environment of a pod tells is not known here. */}}
{{- define "merchant-gateway.portsOf" -}}
{{- $ports := list -}}
{{- $ofSchemes := dict "http" 80 "https" 443 "redis" 6379 "rediss" 6379 "tls" 6514 "tcp" 601 -}}
{{- range . -}}
{{- $authority := regexReplaceAll "^[a-z]+://" . "" | regexFind "^[^/?#]*" -}}
{{- $port := regexFind ":[0-9]+$" $authority | trimPrefix ":" | default (get $ofSchemes (regexFind "^[a-z]+" .)) -}}
{{- if $port -}}
{{- $ports = append $ports (int $port) -}}
{{- end -}}
{{- end -}}
{{- $ports | toJson -}}
{{- end -}}

{{/* A destination with the ports of what is called there beside its own. Takes destination and urls; JSON. */}}
{{- define "merchant-gateway.destination" -}}
{{- $ports := list -}}
{{- range concat .destination.ports (include "merchant-gateway.portsOf" .urls | fromJsonArray) -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
{{- dict "to" .destination.to "ports" (uniq $ports) | toJson -}}
{{- end -}}

{{/* Redis and its sentinels, in the same way. Takes root and config. */}}
{{- define "merchant-gateway.redisDestination" -}}
{{- $redis := dig "keyStore" "redis" dict .config -}}
{{- $servers := concat (default list $redis.cluster) (default list (default dict $redis.sentinel).servers) -}}
{{- $urls := append $servers (default "" $redis.url) -}}
{{- include "merchant-gateway.destination" (dict "destination" .root.Values.networkPolicy.egress.redis "urls" $urls) -}}
{{- end -}}

{{/* The URLs of the places that keep a gateway's checkpoints, as a list in JSON. Takes config. */}}
{{- define "merchant-gateway.checkpointUrls" -}}
{{- $urls := list -}}
{{- $checkpoints := default dict (dig "accessLog" "checkpoints" dict .config) -}}
{{- range $place := list "https" "syslog" -}}
{{- with get $checkpoints $place -}}
{{- $urls = append $urls .url -}}
{{- end -}}
{{- end -}}
{{- $urls | toJson -}}
{{- end -}}

{{/* The upstreams of one environment, in the same way. Takes root and config, which is the one that is rendered. */}}
{{- define "merchant-gateway.upstreamDestination" -}}
{{- $urls := list -}}
{{- range .config.upstreams -}}
{{- $urls = append $urls .url -}}
{{- end -}}
{{- if .root.Values.services.enabled -}}
{{- /* A policy sees the port of the pod, whatever that of its Service is. */}}
{{- $urls = append $urls (printf "services:%s" (include "merchant-gateway.partPort" "services")) -}}
{{- end -}}
{{- include "merchant-gateway.destination" (dict "destination" .root.Values.networkPolicy.egress.upstreams "urls" $urls) -}}
{{- end -}}

{{/*
Lets the pods of a hook reach these destinations and no other, and nobody reach them. A hook of its own, made before them: the
release's own policies come behind them. Takes root, component, name, hook (their annotations) and egress.
*/}}
{{- define "merchant-gateway.hookPolicy" -}}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "merchant-gateway.metadata" (merge (dict "annotations" (merge (dict "helm.sh/hook-weight" "-20") .hook)) .) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "merchant-gateway.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress: []
  {{- with .egress }}
  egress:
    {{- include "merchant-gateway.egress" . | nindent 4 }}
  {{- else }}
  egress: []
  {{- end }}
{{- end }}
{{- end -}}
