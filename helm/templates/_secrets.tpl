{{/*
The secrets that are mounted as files: their configuration options, and the parts that use them. `of` and `entry` name the secret
and its value with the key, if they differ. `for` names a secret without which this one is not used.
*/}}
{{- define "merchant-gateway.secretFiles" -}}
keyPepper: { option: [keys, pepperFile], parts: [gateway, registry] }
recordSecret: { option: [keys, recordSecretFile], parts: [gateway, registry] }
redisPassword: { option: [keyStore, redis, passwordFile], parts: [gateway, registry, tor-exits] }
sentinelPassword: { option: [keyStore, redis, sentinel, passwordFile], parts: [gateway, registry, tor-exits] }
redisCa: { option: [keyStore, redis, caFile], parts: [gateway, registry, tor-exits] }
adminToken: { option: [registry, tokenFile], parts: [registry] }
servicesTokenKey: { option: [registry, servicesToken, keyFile], parts: [registry] }
servicesTokenPublicKey: { option: [services, operators, registryKeys], parts: [services], of: servicesTokenKey, entry: publicKey, for: servicesTrailToken }
servicesTrailToken: { option: [services, operators, trail, tokenFile], parts: [services] }
registryCa: { option: [services, operators, trail, caFile], parts: [services], for: servicesTrailToken }
operatorsToken: { option: [services, operators, tokenFile], parts: [services] }
identitySigningKey: { option: [identity, signingKeyFile], parts: [gateway] }
accessLog: { option: [accessLog, secretFile], parts: [gateway] }
instanceKey: { option: [accessLog, checkpoints, keyFile], parts: [gateway] }
witnessKey: { option: [registry, witness, keyFile], parts: [registry] }
oidcClientSecret: { option: [registry, oidc, clientSecretFile], parts: [registry] }
registryClientCa: { option: [registry, listen, clientCaFile], parts: [registry] }
tlsTicketKeys: { option: [listen, https, ticketKeysFile], parts: [gateway] }
tlsClientCa: { option: [listen, https, clientCaFile], parts: [gateway] }
traces: { option: [traces, tokenFile], parts: [gateway] }
{{- end -}}

{{/* The secrets that the chart can generate. */}}
{{- define "merchant-gateway.ownSecrets" -}}
{{- list "recordSecret" "instanceKey" "witnessKey" "servicesTokenKey" | toJson -}}
{{- end -}}

{{/* The name of a Secret that the chart generates. Takes root and secret. */}}
{{- define "merchant-gateway.madeSecretName" -}}
{{- include "merchant-gateway.fullname" .root }}-{{ kebabcase .secret }}
{{- end -}}

{{/* Whether the registry accepts the shared token of administrators. Helm reads an unquoted off as false. */}}
{{- define "merchant-gateway.hasSharedToken" -}}
{{- if not (has (dig "registry" "bootstrap" "on" .Values.config | toString) (list "off" "false")) -}}true{{- end -}}
{{- end -}}

{{/* Whether Helm has access to the cluster. A lookup without it is empty, even of this ConfigMap, which each namespace has. */}}
{{- define "merchant-gateway.hasCluster" -}}
{{- if lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt" -}}true{{- end -}}
{{- end -}}

{{/* Whether neither the registry nor a gateway of this release exists yet, according to Helm or to the cluster. */}}
{{- define "merchant-gateway.isNew" -}}
{{- $existing := list -}}
{{- if not .Release.IsInstall -}}
{{- range list "registry" "live" "test" -}}
{{- $name := printf "%s-%s" (include "merchant-gateway.fullname" $) . -}}
{{- $existing = append $existing (lookup "apps/v1" "Deployment" $.Release.Namespace $name) -}}
{{- end -}}
{{- end -}}
{{- if not (compact $existing) -}}true{{- end -}}
{{- end -}}

{{/*
Whether the chart generates a Secret: the record secret, or a key that signs the access log or its receipts. With create: null:
- A release that already has the Secret keeps it.
- A new installation gets one if it has gateways and their registry.
  - The upgrade after an installation that failed before it created a Deployment counts as new.
  - Any other upgrade must not add the record secret: a gateway with it trusts no record until the registry has sealed all of them.
  - A registry in another release would not know the record secret.
  - The keys change the format of the access log, and are useless without the record secret.
- The key of services tokens is useful with the token of the services' administrator, who exists only after the installation. An upgrade adds it.
- A tool that renders without the cluster, such as GitOps, gets none, because each rendering would generate another one.
Takes root and secret.
*/}}
{{- define "merchant-gateway.makesSecret" -}}
{{- $root := .root -}}
{{- $secret := index $root.Values.secrets .secret -}}
{{- $create := dig "create" nil $secret -}}
{{- if $secret.existingSecret -}}
{{- else if kindIs "bool" $create -}}
{{- if $create -}}true{{- end -}}
{{- else if lookup "v1" "Secret" $root.Release.Namespace (include "merchant-gateway.madeSecretName" .) -}}
true
{{- else if eq .secret "servicesTokenKey" -}}
{{- $isUsed := and $root.Values.registry.enabled $root.Values.secrets.servicesTrailToken.existingSecret -}}
{{- if and $isUsed (include "merchant-gateway.hasCluster" $root) -}}true{{- end -}}
{{- else if and $root.Values.registry.enabled (include "merchant-gateway.isNew" $root) (include "merchant-gateway.environments" $root | fromJsonArray) -}}
{{- $records := dict "root" $root "secret" "recordSecret" -}}
{{- if not (include "merchant-gateway.hasCluster" $root) -}}
{{- else if or (eq .secret "recordSecret") $root.Values.secrets.recordSecret.existingSecret -}}
true
{{- else -}}
{{- include "merchant-gateway.makesSecret" $records -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The secrets of a part, by name: the Secret's name and key, and the configuration option. A migration has no secrets.
Takes root, part and optionally isMigration.
*/}}
{{- define "merchant-gateway.secretsOfPart" -}}
{{- $found := dict -}}
{{- $own := include "merchant-gateway.ownSecrets" . | fromJsonArray -}}
{{- range $name, $file := include "merchant-gateway.secretFiles" . | fromYaml -}}
{{- $of := default $name $file.of -}}
{{- $secret := index $.root.Values.secrets $of -}}
{{- $existing := $secret.existingSecret -}}
{{- $asked := dict "root" $.root "secret" $of -}}
{{- if and (not $existing) (eq $name "registryCa") (include "merchant-gateway.makesRegistryTls" $.root) -}}
{{- $existing = include "merchant-gateway.registryTlsSecret" $.root -}}
{{- end -}}
{{- if and $file.for (not (index $.root.Values.secrets (default $name $file.for)).existingSecret) -}}
{{- $existing = "" -}}
{{- else if and (eq $name "adminToken") (not (include "merchant-gateway.hasSharedToken" $.root)) -}}
{{- $existing = "" -}}
{{- else if and (not $existing) (has $of $own) (include "merchant-gateway.makesSecret" $asked) -}}
{{- $existing = include "merchant-gateway.madeSecretName" $asked -}}
{{- end -}}
{{- if and $existing (has $.part $file.parts) (not $.isMigration) -}}
{{- $_ := set $found $name (dict "secret" $existing "key" (index $secret (default "key" $file.entry)) "option" $file.option) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* The name of the Secret with the certificate of the admin API. */}}
{{- define "merchant-gateway.registryTlsSecret" -}}
{{- default (printf "%s-registry-tls" (include "merchant-gateway.fullname" .)) .Values.registry.tls.existingSecret -}}
{{- end -}}

{{/*
Whether the chart creates the certificate of the admin API. With create: null, only with access to the cluster, because
otherwise each rendering would contain another private key.
*/}}
{{- define "merchant-gateway.makesRegistryTls" -}}
{{- $tls := .Values.registry.tls -}}
{{- if or (not .Values.registry.enabled) $tls.existingSecret -}}
{{- else if kindIs "bool" $tls.create -}}
{{- if $tls.create -}}true{{- end -}}
{{- else -}}
{{- include "merchant-gateway.hasCluster" . -}}
{{- end -}}
{{- end -}}

{{/*
The time at which an upgrade renews that certificate, in seconds since 1970: after half of its five years. It is a whole
day, because a rendering computes it twice.
*/}}
{{- define "merchant-gateway.registryTlsRenewAt" -}}
{{- $held := lookup "v1" "Secret" .Release.Namespace (include "merchant-gateway.registryTlsSecret" .) -}}
{{- $renewAt := dig "metadata" "annotations" "merchant-gateway/renew-at" "0" $held | int64 -}}
{{- $now := now | unixEpoch | int64 -}}
{{- if ge $now $renewAt -}}
{{- $renewAt = mul 86400 (add 913 (div $now 86400)) -}}
{{- end -}}
{{- printf "%d" $renewAt -}}
{{- end -}}

{{/* The names of the registry's Service. Returns a JSON list. */}}
{{- define "merchant-gateway.registryHosts" -}}
{{- $name := printf "%s-registry" (include "merchant-gateway.fullname" .) -}}
{{- $inNamespace := printf "%s.%s" $name .Release.Namespace -}}
{{- list $name $inNamespace (printf "%s.svc" $inNamespace) (printf "%s.svc.cluster.local" $inNamespace) | toJson -}}
{{- end -}}
