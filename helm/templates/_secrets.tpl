{{/* The secrets that are files: their place in the configuration, and the parts that have them. */}}
{{- define "merchant-gateway.secretFiles" -}}
keyPepper: { option: [keys, pepperFile], parts: [gateway, registry] }
redisPassword: { option: [keyStore, redis, passwordFile], parts: [gateway, registry, tor-exits] }
redisCa: { option: [keyStore, redis, caFile], parts: [gateway, registry, tor-exits] }
adminToken: { option: [registry, tokenFile], parts: [registry] }
identitySigningKey: { option: [identity, signingKeyFile], parts: [gateway] }
accessLog: { option: [accessLog, secretFile], parts: [gateway] }
tlsTicketKeys: { option: [listen, https, ticketKeysFile], parts: [gateway] }
tlsClientCa: { option: [listen, https, clientCaFile], parts: [gateway] }
traces: { option: [traces, tokenFile], parts: [gateway] }
{{- end -}}

{{/*
The secrets of a part, by name: the Secret's name and key, and the option. A migration has none of them.
Takes root, part and, if need be, isMigration.
*/}}
{{- define "merchant-gateway.secretsOfPart" -}}
{{- $found := dict -}}
{{- range $name, $file := include "merchant-gateway.secretFiles" . | fromYaml -}}
{{- $secret := index $.root.Values.secrets $name -}}
{{- if and $secret.existingSecret (has $.part $file.parts) (not $.isMigration) -}}
{{- $_ := set $found $name (dict "secret" $secret.existingSecret "key" $secret.key "option" $file.option) -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}
