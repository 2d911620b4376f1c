{{/*
NetworkPolicy rules for a list of destinations, each with `to` and `ports`. DNS uses UDP and TCP. A destination with
neither is omitted: its rule would allow every connection.
*/}}
{{- define "merchant-gateway.egress" -}}
{{- range . }}
{{- if or .ports .to }}
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
{{- end }}
{{- end -}}

{{/* The ports in URLs and in host:port. A port from an environment variable of a pod is unknown here. Returns a JSON list. */}}
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

{{/* A destination with its ports and the ports in these URLs. Takes destination and urls. Returns JSON. */}}
{{- define "merchant-gateway.destination" -}}
{{- $ports := list -}}
{{- range concat .destination.ports (include "merchant-gateway.portsOf" .urls | fromJsonArray) -}}
{{- $ports = append $ports (int .) -}}
{{- end -}}
{{- dict "to" .destination.to "ports" (uniq $ports) | toJson -}}
{{- end -}}

{{/* The destination of Redis and its sentinels, with the ports in config. Takes root and config. */}}
{{- define "merchant-gateway.redisDestination" -}}
{{- $redis := dig "keyStore" "redis" dict .config -}}
{{- $servers := concat (default list $redis.cluster) (default list (default dict $redis.sentinel).servers) -}}
{{- $urls := append $servers (default "" $redis.url) -}}
{{- include "merchant-gateway.destination" (dict "destination" .root.Values.networkPolicy.egress.redis "urls" $urls) -}}
{{- end -}}

{{/* The https and syslog destinations of a gateway's checkpoints. Takes config. Returns a JSON list of URLs. */}}
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

{{/* The destination of the upstreams of one environment, with the ports in config. Takes root and the rendered config. */}}
{{- define "merchant-gateway.upstreamDestination" -}}
{{- $urls := list -}}
{{- range .config.upstreams -}}
{{- $urls = append $urls .url -}}
{{- end -}}
{{- if .root.Values.services.enabled -}}
{{- /* A NetworkPolicy matches the port of the pod, not the port of its Service. */}}
{{- $urls = append $urls (printf "services:%s" (include "merchant-gateway.partPort" "services")) -}}
{{- end -}}
{{- include "merchant-gateway.destination" (dict "destination" .root.Values.networkPolicy.egress.upstreams "urls" $urls) -}}
{{- end -}}

{{/*
A policy that allows the pods of a hook only these destinations and no ingress. The policy is a hook too and is created
before the pods, because the policies of the release are created after them.
Takes root, component, name, hook (the annotations of the pods) and egress.
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
